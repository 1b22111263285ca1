"""Computes figures from a run's records, by model and contestant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.serving.clients.load import median, percentile
from benchmarks.serving.contestants import BARE, OCTET
from benchmarks.serving.records import (
    Entry,
    Failure,
    Fairness,
    Footprint,
    Overhead,
    Overload,
    Record,
    Road,
    Run,
    Soak,
    Turn,
)

Key = tuple[str, str]  # model, contestant


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


@dataclass
class Results:
    """
    Attributes:
        entries: the successful entries; `failed` has the others.
    """

    run: Run | None = None
    overheads: list[Overhead] = field(default_factory=list)
    roads: list[Road] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    entries: dict[Key, Entry] = field(default_factory=dict)
    failed: list[Entry] = field(default_factory=list)
    overloads: list[Overload] = field(default_factory=list)
    fairnesses: list[Fairness] = field(default_factory=list)
    footprints: list[Footprint] = field(default_factory=list)
    soaks: list[Soak] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def add_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        match record:
            case Run():
                self.run = self.run or record
            case Overhead():
                self.overheads.append(record)
            case Road():
                self.roads.append(record)
            case Turn():
                self.turns.append(record)
            case Entry(error=""):
                self.entries[record.model, record.contestant] = record
            case Entry():
                self.failed.append(record)
            case Overload():
                self.overloads.append(record)
            case Fairness():
                self.fairnesses.append(record)
            case Footprint():
                self.footprints.append(record)
            case Soak():
                self.soaks.append(record)
            case Failure():
                self.failures.append(record)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(turn.model for turn in self.turns))

    def contestants(self, model: str) -> list[str]:
        """Returns Octet first, then the peers, the best first."""
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
        """Returns the first's throughput divided by the second's."""
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
