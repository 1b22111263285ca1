"""A process that does the work, as the others know it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

_ENCRYPTED = "https://"


class Place(NamedTuple):
    """Where a worker takes requests."""

    host: str
    port: int
    is_encrypted: bool


def place_of(address: str) -> Place:
    """What `Worker.address` says. Raises `ValueError`: it is none."""
    host, _, port = address.removeprefix(_ENCRYPTED).rpartition(":")
    return Place(host.strip("[]"), int(port), address.startswith(_ENCRYPTED))


class WorkerKind(StrEnum):
    COMPILE = "compile"
    INFERENCE = "inference"


class WorkerState(StrEnum):
    READY = "ready"
    DRAINING = "draining"  # it ends, and answers what it has


@dataclass(frozen=True)
class Worker:
    """One process, until it ends; the next has another id.

    Attributes:
        host: the name of its machine.
        target: whose artifacts it serves, in a cluster; else the best of its machine. None where none runs.
        seen_at: its last sign of life.
        build: the build that it works on, if it does.
        pool: of the workers that are like it; None where it is of no cluster.
        address: HOST:PORT where the API reaches it by HTTP, or https://HOST:PORT; None where it is of no cluster.
        features: of its CPU and its cards, as `core.target` names them.
        capacity: how many calls it computes at a time.
        loaded: the names that it has in memory: models, and versions as they were asked for; "" for none.
        loaded_version: grows whenever `loaded` changes.
        release: the version of the program.
    """

    id: str
    kind: WorkerKind
    host: str
    pid: int
    target: str | None
    started_at: datetime
    seen_at: datetime
    build: str | None = None
    pool: str | None = None
    address: str | None = None
    features: tuple[str, ...] = ()
    capacity: int = 0
    loaded: tuple[tuple[str, str], ...] = ()
    loaded_version: int = 0
    release: str = ""
    state: WorkerState = WorkerState.READY

    @property
    def models(self) -> dict[str, list[str]]:
        """What it has in memory: versions, by model."""
        found: dict[str, list[str]] = {}
        for model, version in self.loaded:
            found.setdefault(model, []).append(version)
        return found


@dataclass(frozen=True)
class Beat:
    """What changes of a worker while nothing happens.

    Attributes:
        silent_s: since its last sign of life, by the database's clock.
    """

    id: str
    state: WorkerState
    loaded_version: int
    silent_s: float
