"""Computes figures from the records of a run: medians over rounds, shares of the peak, the fastest contestant."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.contest.contestants import CONTESTANTS, PEAK, Contestant
from benchmarks.contest.records import Entry, Model, Record, Run, Slice
from benchmarks.harness.tables import milliseconds
from benchmarks.harness.turn import Turn

PEAKS = "peak"  # the name of the model under which the peaks of all instructions are recorded


@dataclass(frozen=True)
class Figure:
    """A contestant's times for one call.

    Attributes:
        median_ms: the median of the medians of the counted rounds: those with a quiet turn, or all if none has one.
        min_ms: the fastest call of these rounds.
        low_ms, high_ms: the lowest and highest median of these rounds.
        disturbed: number of rounds without a quiet turn.
    """

    median_ms: float
    min_ms: float
    low_ms: float
    high_ms: float
    rounds: int
    disturbed: int

    @property
    def text(self) -> str:
        """Returns the median in milliseconds, with a star if most rounds were disturbed."""
        return milliseconds(self.median_ms) + ("*" if 2 * self.disturbed > self.rounds else "")


def figure_of(rounds: Iterable[Sequence[Turn]], quiet_cpus: float) -> Figure:
    """Computes a figure. Each round is a list of attempts, of which the least disturbed one counts. After a quiet
    attempt, a round has no further ones.
    """
    best = [min(attempts, key=lambda turn: turn.other_cpus) for attempts in rounds]
    quiet = [turn for turn in best if turn.other_cpus <= quiet_cpus]
    medians = [turn.median_ms for turn in quiet or best]
    return Figure(
        median_ms=statistics.median(medians),
        min_ms=min(turn.min_ms for turn in quiet or best),
        low_ms=min(medians),
        high_ms=max(medians),
        rounds=len(best),
        disturbed=len(best) - len(quiet),
    )


@dataclass
class Results:
    """Computes figures from the records of a run."""

    run: Run | None = None
    models: dict[str, Model] = field(default_factory=dict)
    entries: dict[tuple[str, str, int], Entry] = field(default_factory=dict)
    failures: list[Entry] = field(default_factory=list)
    _turns: dict[tuple[str, str, int], dict[int, list[Turn]]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        match record:
            case Run():
                self.run = record
            case Model():
                self.models[record.name] = record
            case Entry() if record.error:
                self.failures.append(record)
            case Entry():
                self.entries[record.model, record.contestant, record.threads] = record
            case Slice():
                rounds = self._turns.setdefault((record.model, record.contestant, record.threads), {})
                rounds.setdefault(record.round, []).append(record.turn)

    @property
    def threads(self) -> list[int]:
        return sorted({threads for _, _, threads in self._turns})

    def figure(self, model: str, contestant: str, threads: int) -> Figure | None:
        """The contestant's figure; None if it took no turn."""
        rounds = self._turns.get((model, contestant, threads))
        assert self.run
        return figure_of(rounds.values(), self.run.quiet_cpus) if rounds else None

    def peak_gmacs(self, model: str, threads: int, contestant: str = PEAK) -> float | None:
        """Returns the GMAC/s of the peak's loop while the model took its turns. The loop's fastest call counts, because
        the peak is a limit.
        """
        figure, entry = self.figure(model, contestant, threads), self.entries.get((model, contestant, threads))
        return entry.info["macs"] / figure.min_ms / 1e6 if figure and entry else None

    def limit_ms(self, model: str, threads: int) -> float | None:
        """Returns the time that the model would take at the peak; None if its multiply-accumulates were not counted."""
        peak, macs = self.peak_gmacs(model, threads), self.models[model].macs
        return macs / peak / 1e6 if peak and macs else None

    def percent_of_peak(self, model: str, contestant: str, threads: int) -> float | None:
        figure, limit_ms = self.figure(model, contestant, threads), self.limit_ms(model, threads)
        return 100 * limit_ms / figure.median_ms if figure and limit_ms else None

    def fastest_peer(self, model: str, threads: int, fp32: bool = False) -> tuple[Contestant, Figure] | None:
        """The fastest contestant that is not Octet, and its figure."""
        peers = [it for it in CONTESTANTS if it.is_fp32 == fp32 and not it.is_octet and it.name != PEAK]
        found = [(it, figure) for it in peers if (figure := self.figure(model, it.name, threads))]
        return min(found, key=lambda pair: pair[1].median_ms, default=None)

    def times_faster(self, model: str, contestant: str, threads: int, fp32: bool = False) -> float | None:
        """Returns the fastest peer's time divided by the contestant's."""
        figure, peer = self.figure(model, contestant, threads), self.fastest_peer(model, threads, fp32)
        return peer[1].median_ms / figure.median_ms if figure and peer else None
