"""A process that does the work, as the others know it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class WorkerKind(StrEnum):
    COMPILE = "compile"
    INFERENCE = "inference"


@dataclass(frozen=True)
class Worker:
    """One process, until it ends; the next has another id.

    Attributes:
        host: the name of its machine.
        target: the best target of its machine; None where none runs.
        build: the build that it works on, if it does.
        seen_at: its last sign of life.
    """

    id: str
    kind: WorkerKind
    host: str
    pid: int
    target: str | None
    started_at: datetime
    seen_at: datetime
    build: str | None = None
