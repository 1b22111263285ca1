"""Workers, which are the processes that compile models or serve predictions, as recorded in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

_ENCRYPTED = "https://"


class WorkerAddress(NamedTuple):
    """The network address where a worker accepts requests."""

    host: str
    port: int
    is_encrypted: bool


def parse_address(address: str) -> WorkerAddress:
    """Parses `Worker.address`.

    Raises:
        ValueError: the address has no port number.
    """
    host, _, port = address.removeprefix(_ENCRYPTED).rpartition(":")
    return WorkerAddress(host.strip("[]"), int(port), address.startswith(_ENCRYPTED))


class WorkerKind(StrEnum):
    COMPILE = "compile"
    INFERENCE = "inference"


class WorkerState(StrEnum):
    READY = "ready"
    DRAINING = "draining"  # about to end; only finishes the requests that it has


@dataclass(frozen=True)
class Worker:
    """One worker process. A process that replaces it has another id.

    Attributes:
        host: the name of its machine.
        target: in a cluster the target whose artifacts it serves, else the best target of its machine; None if the
            machine runs no target.
        seen_at: the time of its last heartbeat.
        build: the build that it is working on; None if it is not building.
        pool: the pool of interchangeable workers that it belongs to; None outside a cluster.
        address: the address at which the API reaches it, as HOST:PORT for HTTP or https://HOST:PORT; None outside a
            cluster.
        features: the features of its CPU and its GPUs, by the names of `core.target`.
        capacity: the number of calls that it computes at a time.
        loaded: (model, version) of everything in its memory. The version is the one that requests name; "" if the
            requests name no version.
        loaded_version: a counter that grows whenever `loaded` changes.
        release: the version of Octet that it runs.
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
        """The versions in its memory, by model."""
        found: dict[str, list[str]] = {}
        for model, version in self.loaded:
            found.setdefault(model, []).append(version)
        return found


@dataclass(frozen=True)
class Beat:
    """The part of a worker's record that a heartbeat updates.

    Attributes:
        silent_s: the time since its last heartbeat, by the database's clock.
    """

    id: str
    state: WorkerState
    loaded_version: int
    silent_s: float
