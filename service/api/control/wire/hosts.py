"""Targets, workers, and what they refuse to run."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from service.api.control.wire.base import Name, Wire
from service.core.worker import WorkerKind, WorkerState


class TargetInfo(Wire):
    name: str
    architecture: str
    features: list[str] = Field(
        description="The CPU features that it needs, as Linux names them; of cards, those that it has code for."
    )
    reason: str = Field(description="The feature that sets the target apart.")
    runs_here: bool
    missing: list[str] = Field(description="The features that this host lacks; empty if the target runs here.")
    host: bool = Field(description='Whether this is the target that "host" stands for on this server.')


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
    crashes: list[datetime] = Field(description="The times of the crashes while it ran, the earliest first.")
    how: str = Field(description="A description of the last crash.", examples=["signal 11: Segmentation fault"])
    models: list[Affected] = Field(description="The models that it would answer for.")


class Quarantine(Wire):
    artifacts: list[Quarantined]


class LoadedModel(Wire):
    """A model that a worker has in memory."""

    model: str
    versions: list[str] = Field(description="As they are asked for: numbers, aliases; empty where none is named.")


class Worker(Wire):
    """A process that compiles, or that answers predictions."""

    id: str
    kind: WorkerKind
    host: str
    pid: int
    target: str | None = Field(description="In a cluster the target that it serves; else the best for its machine.")
    build: str | None = Field(description="The id of the build that it works on.")
    started_at: datetime
    seen_at: datetime = Field(description="The time of its last heartbeat.")
    state: WorkerState
    release: str = Field(description="The version of its program.")
    pool: str | None = Field(description="The workers that are like it; only in a cluster.")
    address: str | None = Field(description="Where the API reaches it; only in a cluster.")
    refused: str | None = Field(None, description="Why the API sends it nothing, though it is there.")
    features: list[str] = Field(description="What its CPU and its cards report; only in a cluster.")
    capacity: int = Field(description="How many calls it computes at a time; only in a cluster.")
    loaded: list[LoadedModel] = Field(description="What it has in memory; only in a cluster.")


class Workers(Wire):
    workers: list[Worker] = Field(description="The workers with a heartbeat within the lease time.")
