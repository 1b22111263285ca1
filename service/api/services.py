"""What request handlers work on. Created once per process by `server.py`, or by a test."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from service.api.access import Access, AuditLog
from service.api.ops.metrics import Metrics
from service.cache import OciLayout
from service.core.certificate import Certificate
from service.core.cluster import pool_of
from service.core.model import ModelVersion
from service.core.settings import Settings
from service.core.target import Host
from service.core.worker import Worker
from service.db import AliasStore, BuildStore, ModelStore, VerificationStore, WorkerStore
from service.workers.crashes import Crashes
from service.workers.data_plane.plane import DataPlane
from service.workers.inference import Registry
from service.workers.routing import Members, Routing
from service.workers.tenant_planes import TenantPlanes

if TYPE_CHECKING:  # it loads OpenTelemetry
    from service.api.ops.tracing import Tracing


@dataclass(frozen=True)
class Services:
    """The components behind the API.

    Attributes:
        registry: which models answer.
        plane: what answers with them.
        tracing: None where requests are not traced.
        certificate: None where connections are in plain text.
        broken_files: what `--models` names and cannot be served, by the file's name, and why.
        routing: None where this process forwards no predictions.
        stopping: set when the process was told to stop; handlers that hold a request open end it then.
    """

    settings: Settings
    layout: OciLayout
    builds: BuildStore
    verifications: VerificationStore
    models: ModelStore
    aliases: AliasStore
    workers: WorkerStore
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
        """A version of a model; None for the newest. Raises `NotFound`."""
        return self.models.get(model) if number is None else self.models.version(model, number)

    def members(self) -> Collection[Worker]:
        """The workers of the cluster that are there. Raises as `Members.look`."""
        return Members(self.workers, self.settings.worker_heartbeat_s).look().values()

    @property
    def pool(self) -> str:
        """That this server is of, or is."""
        return pool_of(self.settings, self.host)

    @property
    def traced(self) -> float:
        """Which part of the requests to trace that do not say it themselves; below 0: none at all."""
        return self.tracing.ratio if self.tracing is not None else -1.0
