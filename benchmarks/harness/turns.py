"""The times of calls, and functions that take alternating turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from benchmarks.harness.machine import OtherLoad

Name = TypeVar("Name")

_MIN_CALLS = 5
_WARM_UP_CALLS = 2  # since the last turn, the others have evicted this one's data from the caches


def alternate(names: Iterable[Name], rounds: int) -> Iterator[tuple[int, Name]]:
    """Yields (round, name): A B C, then C B A, and so on, so that a change of the machine affects all of them alike."""
    ordered = list(names)
    for number in range(rounds):
        for name in ordered[:: 1 if number % 2 == 0 else -1]:
            yield number, name


def time_calls(call: Callable[[], object], seconds: float, least: int = 1) -> list[float]:
    """Returns the duration of each call in seconds, for about `seconds` and at least `least` calls."""
    clock = time.perf_counter
    durations: list[float] = []
    end = clock() + seconds
    while True:
        before = clock()
        call()
        after = clock()
        durations.append(after - before)
        if after > end and len(durations) >= least:
            return durations


def time_warm_calls(call: Callable[[], object], seconds: float) -> list[float]:
    """Returns the duration of each call like `time_calls`, for at least five calls, after two calls that do not
    count."""
    time_calls(call, 0, _WARM_UP_CALLS)
    return time_calls(call, seconds, _MIN_CALLS)


class Timed(Protocol):
    """A function that can be called repeatedly; `pids` are the processes that work for it."""

    @property
    def pids(self) -> Sequence[int]: ...

    def durations_s(self, seconds: float) -> list[float]:
        """Returns one duration for each call, for about `seconds` and at least five calls."""


@dataclass
class Timings:
    """The times of one of several functions that took turns.

    Attributes:
        rounds: the duration of each call in seconds, by round.
        other_cpus: the number of CPUs that other programs kept busy, by round.
    """

    rounds: list[list[float]] = field(default_factory=list)
    other_cpus: list[float] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        return 1e3 * statistics.median(duration for durations in self.rounds for duration in durations)

    @property
    def medians_ms(self) -> list[float]:
        return [1e3 * statistics.median(durations) for durations in self.rounds]

    def cells(self) -> list[str]:
        """Returns the cells for the columns `COLUMNS`."""
        low, high = min(self.medians_ms), max(self.medians_ms)
        calls, other_cpus = sum(map(len, self.rounds)), statistics.mean(self.other_cpus)
        return [f"{self.median_ms:.3f}", f"{low:.3f} to {high:.3f}", str(calls), f"{other_cpus:.2f}"]


COLUMNS = ["median ms", "medians of the rounds", "calls", "CPUs busy with other work"]


def take_turns(contenders: Mapping[Name, Timed], rounds: int, seconds: float) -> dict[Name, Timings]:
    timings = {name: Timings() for name in contenders}
    for _, name in alternate(contenders, rounds):
        other = OtherLoad(contenders[name].pids)
        timings[name].rounds.append(contenders[name].durations_s(seconds))
        timings[name].other_cpus.append(other.cpus())
    return timings


def differences_ms(slower: Timings, faster: Timings) -> list[float]:
    """Returns the difference of the medians within each round."""
    return [first - second for first, second in zip(slower.medians_ms, faster.medians_ms, strict=True)]
