"""Opens the services that the application uses: the database, the store, and the model registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.api.access import Access, AuditLog, check_exposure, stores_of
from service.api.control.submission import request_again
from service.api.ops.metrics import Metrics
from service.api.ops.traced import start_tracing
from service.api.services import Services
from service.core.builds.build import Build
from service.core.cluster import roles
from service.core.cluster.certificate import Certificate
from service.core.cluster.queueing import scheduling_of
from service.core.cluster.settings import Role
from service.core.errors import OctetError, StoreUnreachable
from service.core.settings import Settings
from service.core.system.gpus import detect_gpus, usable_bytes
from service.core.target import Host
from service.db import (
    AliasStore,
    BuildStore,
    Database,
    LiveCountStore,
    ModelStore,
    PredictionJobStore,
    VerificationStore,
    WorkerStore,
)
from service.runtime.trust import Trust
from service.workers.catalog import synchronize
from service.workers.crashes import crashes_of
from service.workers.data_plane.plane import DataPlane
from service.workers.inference import Registry
from service.workers.inference.artifacts import StoredArtifacts
from service.workers.routing import Members, Servable, routing_of
from service.workers.store import open_store
from service.workers.tenant_planes import TenantPlanes

_logger = logging.getLogger(__name__)


@contextmanager
def assemble(
    settings: Settings,
    host: Host,
    plane: DataPlane | TenantPlanes,
    certificate: Certificate | None = None,
    on_lost: Callable[[], None] = lambda: None,
) -> Iterator[Services]:
    """Opens the services of one process, in the data folder of `settings`. Migrates the database, and restores lost
    data.

    Args:
        plane: the data plane, which runs predictions.
        certificate: the certificate of the public ports; None if they use plain text.
        on_lost: see `Database`.

    Raises:
        InvalidInput: other machines can reach the address, and there is no API key; or the keys cannot be read.
        OctetError: the database or the store cannot be opened.
    """
    database = Database.of(settings, on_lost)
    database.migrate()
    stores = stores_of(settings, database)
    if not database.is_sqlite:  # with SQLite, keys are in files, which the supervisor has checked
        check_exposure(settings, stores)
    access = Access(settings, stores=stores)
    crashes = crashes_of(settings, database)
    layout = open_store(settings, database)
    builds = BuildStore(database, max_attempts=settings.max_build_attempts)
    models, aliases = ModelStore(database), AliasStore(database)
    verifications = VerificationStore(database, max_attempts=settings.max_build_attempts)
    try:
        synchronize(layout, builds, models, aliases)
    except StoreUnreachable as error:  # the models that the database already lists can still be served
        _logger.warning("cannot compare the database with the store: %s", error)
    metrics, trust = Metrics(), Trust.of(settings)

    def build_again(lost: Build) -> None:
        try:
            request_again(services, lost)
        except OctetError as error:
            _logger.error("build %s cannot be repeated here: %s", lost.id, error)

    pool = "" if settings.role is Role.API else roles.pool_of(settings, host)
    registry = Registry(
        builds,
        models,
        StoredArtifacts(layout, crashes, trust, verifications, pool),
        plane,
        aliases=aliases,
        changes=database.changes,
        targets=roles.served_targets(settings, host),
        scheduling=lambda model: scheduling_of(settings.serving(model)),
        on_lost=build_again,
        memory_bytes=settings.model_memory_bytes,
        card_memory_bytes=settings.card_memory_bytes or usable_bytes(detect_gpus().cards),
    )
    workers, tracing = WorkerStore(database), start_tracing(settings)
    routing = None
    if settings.role is Role.API:
        assert isinstance(plane, DataPlane)  # `octet serve` is the only command with one data plane per tenant
        members = Members(workers, settings.worker_heartbeat_s)
        routing = routing_of(
            settings, members, Servable(builds, models, aliases), plane, builds.notifications, database.changes
        )
    services = Services(
        settings,
        layout,
        builds,
        verifications,
        models,
        aliases,
        workers,
        LiveCountStore(database),
        PredictionJobStore(database, settings.jobs_kept_s, settings.max_jobs, settings.max_jobs_bytes),
        registry,
        plane,
        host,
        metrics,
        access,
        AuditLog(stores.audit),
        crashes,
        tracing=tracing,
        certificate=certificate,
        routing=routing,
    )
    try:
        yield services
    finally:
        if tracing is not None:
            tracing.close()
        database.close()
