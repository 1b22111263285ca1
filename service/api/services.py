"""The services that request handlers use. Created once per process by `server.py`, or by a test."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from service.api.access import Access, AuditLog
from service.api.ops.metrics import Metrics
from service.cache import OciLayout
from service.core.cluster.certificate import Certificate
from service.core.cluster.roles import pool_of
from service.core.cluster.worker import Worker
from service.core.models.model import ModelVersion
from service.core.settings import Settings
from service.core.target import Host
from service.db import (
    AliasStore,
    BuildStore,
    LiveCountStore,
    ModelStore,
    PredictionJobStore,
    VerificationStore,
    WorkerStore,
)
from service.workers.crashes import Crashes
from service.workers.data_plane.plane import DataPlane
from service.workers.inference import Registry
from service.workers.routing import Members, Routing
from service.workers.tenant_planes import TenantPlanes

if TYPE_CHECKING:  # the module loads OpenTelemetry
    from service.api.ops.tracing import Tracing


@dataclass(frozen=True)
class Services:
    """The components that the API uses.

    Attributes:
        live: the counts of the values that requests cause.
        jobs: the predictions whose results clients fetch later.
        registry: the models that this server serves.
        plane: the data plane, which runs predictions.
        tracing: the traces of requests; None if requests are not traced.
        certificate: the certificate of the public ports; None if connections use plain text.
        broken_files: the reason for each file of `--models` that cannot be served, by file name.
        routing: chooses the workers of forwarded predictions; None if this process forwards no predictions.
        stopping: set when the process starts to stop. A handler that keeps a request open then ends the request.
    """

    settings: Settings
    layout: OciLayout
    builds: BuildStore
    verifications: VerificationStore
    models: ModelStore
    aliases: AliasStore
    workers: WorkerStore
    live: LiveCountStore
    jobs: PredictionJobStore
    registry: Registry
    plane: DataPlane | TenantPlanes
    host: Host
    metrics: Metrics
    access: Access
    audit: AuditLog
    crashes: Crashes
    broken_files: dict[str, str] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    tracing: Tracing | None = None
    certificate: Certificate | None = None
    routing: Routing | None = None

    def version(self, model: str, number: int | None) -> ModelVersion:
        """Returns a version of a model, by default the newest. Raises `NotFound`."""
        return self.models.get(model) if number is None else self.models.version(model, number)

    def members(self) -> Collection[Worker]:
        """Returns the running workers of the cluster. Raises the same errors as `Members.look`."""
        return Members(self.workers, self.settings.worker_heartbeat_s).look().values()

    @property
    def pool(self) -> str:
        """The name of the pool that this server belongs to. A single server is a pool of its own."""
        return pool_of(self.settings, self.host)

    @property
    def traced(self) -> float:
        """The fraction of requests to trace, among those whose headers do not decide it. A negative number means that
        none is traced.
        """
        return self.tracing.ratio if self.tracing is not None else -1.0
