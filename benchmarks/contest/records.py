"""Records of a contest (`harness.records`): `run` (first, once: the machine and the settings), `model`, `contestant`
(its information after loading, or the error) and `turn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from benchmarks.harness.records import read as read_lines
from benchmarks.harness.turn import Turn


@dataclass(frozen=True)
class Run:
    """The machine and the settings.

    Attributes:
        cores: the cores to which the contestants with the most threads are pinned; others use the first of them.
        peak: the instruction whose peak is the reference.
    """

    kind: ClassVar[str] = "run"
    started_at: str
    cpu: str
    target: str
    cores: list[int]
    peak: str
    rounds: int
    seconds: float
    quiet_cpus: float
    repeats: int
    versions: dict[str, str]
    note: str = ""


@dataclass(frozen=True)
class Model:
    kind: ClassVar[str] = "model"
    name: str
    title: str
    note: str
    batch: int
    macs: int
    part: str = ""


@dataclass(frozen=True)
class Entry:
    """A contestant on a model: its information after loading, or `error`."""

    kind: ClassVar[str] = "contestant"
    model: str
    contestant: str
    threads: int
    cores: list[int]
    info: dict[str, Any]
    error: str = ""


@dataclass(frozen=True)
class Slice:
    """One turn. `attempt` counts from 0: a turn that was disturbed is repeated."""

    kind: ClassVar[str] = "turn"
    model: str
    contestant: str
    threads: int
    round: int
    attempt: int
    turn: Turn

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Self:
        return cls(**{**fields, "turn": Turn(**fields["turn"])})


Record = Run | Model | Entry | Slice


def read(paths: Iterable[Path]) -> Iterator[Record]:
    for path in paths:
        for kind, fields in read_lines(path):
            yield record_of(kind, fields)


def record_of(kind: str, fields: dict[str, Any]) -> Record:
    """Creates the record of a type. Raises ValueError if the type is not one of the four."""
    match kind:
        case Run.kind:
            return Run(**fields)
        case Model.kind:
            return Model(**fields)
        case Entry.kind:
            return Entry(**fields)
        case Slice.kind:
            return Slice.from_fields(fields)
        case other:
            raise ValueError(f"unknown kind of record: {other!r}")
