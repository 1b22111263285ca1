"""Schemas of targets, workers and quarantined artifacts."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from service.api.control.wire.base import Name, Wire
from service.core.cluster.worker import WorkerKind, WorkerState


class TargetInfo(Wire):
    name: str
    architecture: str
    features: list[str] = Field(
        description="The CPU features that it needs, as Linux names them; for a GPU target, the compute capabilities "
        "that it has code for."
    )
    reason: str = Field(description="The feature that distinguishes the target.")
    runs_here: bool
    missing: list[str] = Field(description="The features that this host lacks; empty if the target runs here.")
    host: bool = Field(description='True if "host" means this target on this server.')


class Targets(Wire):
    architecture: str = Field(description="The architecture of this host.")
    cpu: str
    targets: list[TargetInfo] = Field(description="The targets, best first within an architecture.")


class Affected(Wire):
    """A version of a model, for one target."""

    name: Name
    version: int
    target: str


class Quarantined(Wire):
    """An artifact in quarantine, which is no longer run."""

    artifact: str = Field(description="The digest of the artifact.")
    crashes: list[datetime] = Field(description="The times of the crashes while it ran, earliest first.")
    how: str = Field(description="A description of the last crash.", examples=["signal 11: Segmentation fault"])
    models: list[Affected] = Field(description="The models that use it.")


class Quarantine(Wire):
    artifacts: list[Quarantined]


class LoadedModel(Wire):
    """A model that a worker has in memory."""

    model: str
    versions: list[str] = Field(
        description="The versions as requests name them: numbers or aliases; an empty string if they name none."
    )


class Worker(Wire):
    """A process that compiles models or runs predictions."""

    id: str
    kind: WorkerKind
    host: str
    pid: int
    target: str | None = Field(description="The target that it serves in a cluster; else the best for its machine.")
    build: str | None = Field(description="The id of the build that it is working on.")
    started_at: datetime
    seen_at: datetime = Field(description="The time of its last heartbeat.")
    state: WorkerState
    release: str = Field(description="Its version of Octet.")
    pool: str | None = Field(description="The pool that it belongs to; only in a cluster.")
    address: str | None = Field(description="The address at which the API reaches it; only in a cluster.")
    refused: str | None = Field(None, description="The reason why the API sends it no requests although it is running.")
    features: list[str] = Field(description="The features of its CPU and GPUs; only in a cluster.")
    capacity: int = Field(description="The number of calls that it computes at the same time; only in a cluster.")
    loaded: list[LoadedModel] = Field(description="The models that it has in memory; only in a cluster.")


class Workers(Wire):
    workers: list[Worker] = Field(description="The workers with a heartbeat within the lease time.")
