"""Records of a contest (`harness.records`): `run` (first, once: the machine and the settings), `model`, `contestant`
(its information after loading, or the error) and `turn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from benchmarks.harness.records import read as read_records
from benchmarks.harness.turn import Turn


@dataclass(frozen=True)
class Run:
    """The machine and the settings.

    Attributes:
        cores: the cores to which the contestants with the most threads are pinned. Contestants with fewer threads use
            the first of these cores.
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
    """A model.

    Attributes:
        macs: the multiply-accumulates of one call; 0 if they were not counted, as in files other than TFLite.
    """

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
    def from_fields(cls, *, turn: dict[str, Any], **fields: Any) -> Self:
        return cls(turn=Turn(**turn), **fields)


Record = Run | Model | Entry | Slice
_TYPES: dict[str, Callable[..., Record]] = {
    **{each.kind: each for each in (Run, Model, Entry)},
    Slice.kind: Slice.from_fields,
}


def read(paths: Iterable[Path]) -> Iterator[Record]:
    for path in paths:
        yield from read_records(path, _TYPES)
