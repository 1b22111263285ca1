"""Computes figures from a run's records, by model and contestant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.serving.clients.load import median, percentile
from benchmarks.serving.contestants import BARE, OCTET
from benchmarks.serving.records import Entry, Record, Run, Turn

Key = tuple[str, str]  # model, contestant
Kind = TypeVar("Kind", bound=Record)


@dataclass(frozen=True)
class Carried:
    """A contestant's rate in its closed turns: the median of the rounds, and their spread."""

    per_s: float
    low_per_s: float
    high_per_s: float


@dataclass(frozen=True)
class Lateness:
    """The latencies of all open turns of a contestant together, at `rate` per second."""

    rate: float
    count: int
    p50_ms: float
    p99_ms: float

    @property
    def spread(self) -> float:
        return self.p99_ms / self.p50_ms


class Results:
    """The records of a run, and figures computed from them.

    Attributes:
        entries: the contestants that could be loaded; `failed` has the others.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: list[Record] = []
        self.add_all(records)

    def add_all(self, records: Iterable[Record]) -> None:
        self._records += records

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Returns the records of one type."""
        return [record for record in self._records if isinstance(record, kind)]

    @property
    def run(self) -> Run | None:
        return next(iter(self.of(Run)), None)

    @property
    def turns(self) -> list[Turn]:
        return self.of(Turn)

    @property
    def entries(self) -> dict[Key, Entry]:
        return {(entry.model, entry.contestant): entry for entry in self.of(Entry) if not entry.error}

    @property
    def failed(self) -> list[Entry]:
        return [entry for entry in self.of(Entry) if entry.error]

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(turn.model for turn in self.turns))

    def contestants(self, model: str) -> list[str]:
        """Returns Octet, and then the peers in descending order of their rates."""
        names = [name for of, name in self.entries if of == model and self.carried(model, name)]
        return sorted(names, key=lambda name: (name != OCTET, -self._per_s(model, name)))

    def carried(self, model: str, contestant: str) -> Carried | None:
        arrivals = "calls" if contestant == BARE else "closed"
        per_s = [turn.per_s for turn in self._turns(model, contestant, arrivals)]
        return Carried(median(per_s), min(per_s), max(per_s)) if per_s else None

    def lateness(self, model: str, contestant: str) -> Lateness | None:
        turns = self._turns(model, contestant, "open")
        latencies = sorted(latency for turn in turns for latency in turn.latencies_ms)
        if not latencies:
            return None
        return Lateness(turns[0].rate, len(latencies), percentile(latencies, 50), percentile(latencies, 99))

    def best_peer(self, model: str) -> str | None:
        return next((name for name in self.contestants(model) if name != OCTET), None)

    def times(self, model: str, first: str, second: str) -> float | None:
        """Returns the throughput of the first contestant divided by that of the second."""
        ours, theirs = self.carried(model, first), self.carried(model, second)
        return ours.per_s / theirs.per_s if ours and theirs and theirs.per_s else None

    def other_cpus(self, model: str, contestant: str) -> float:
        """Returns the other CPUs of the contestant's busiest turn."""
        turns = [turn.other_cpus for turn in self.turns if (turn.model, turn.contestant) == (model, contestant)]
        return max(turns, default=float("nan"))

    def unlike_200(self, model: str, contestant: str) -> str:
        """Describes missing or wrong responses, as in `3 lost, 1 wrong`; empty if all were correct."""
        counts: dict[str, int] = {}
        for turn in self._turns(model, contestant, "closed") + self._turns(model, contestant, "open"):
            for status, count in {**turn.statuses, "wrong": turn.wrong}.items():
                if status != "200" and count:
                    counts[status] = counts.get(status, 0) + count
        return ", ".join(f"{count} {status}" for status, count in counts.items())

    def _per_s(self, model: str, contestant: str) -> float:
        carried = self.carried(model, contestant)
        return carried.per_s if carried else 0.0

    def _turns(self, model: str, contestant: str, arrivals: str) -> list[Turn]:
        wanted = (model, contestant, arrivals)
        return [turn for turn in self.turns if (turn.model, turn.contestant, turn.arrivals) == wanted]
