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
    """One worker process. A process that replaces this one has another id.

    Attributes:
        host: the name of the worker's machine.
        target: in a cluster the target whose artifacts the worker serves, else the machine's best; None if the
            machine runs no target.
        seen_at: the time of the worker's last heartbeat.
        build: the build that the worker is working on; None if it is not building.
        pool: the pool of interchangeable workers that this one belongs to; None outside a cluster.
        address: where the API reaches the worker, as HOST:PORT for HTTP or https://HOST:PORT; None outside a
            cluster.
        features: the features of the machine's CPU and GPUs, by the names of `core.target`.
        capacity: the number of calls that the worker computes at a time.
        loaded: (model, version) of everything in the worker's memory. The version is as requests name it; "" if the
            requests name no version.
        loaded_version: a counter that grows whenever `loaded` changes.
        release: the version of Octet that the worker runs.
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
        """The versions in the worker's memory, by model."""
        found: dict[str, list[str]] = {}
        for model, version in self.loaded:
            found.setdefault(model, []).append(version)
        return found


@dataclass(frozen=True)
class Beat:
    """The part of a worker's record that a heartbeat updates.

    Attributes:
        silent_s: the time since the worker's last heartbeat, by the database's clock.
    """

    id: str
    state: WorkerState
    loaded_version: int
    silent_s: float
