"""Takes turns among functions, and summarizes the results: medians, and the spread over rounds."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Name = TypeVar("Name")

TIMES = "\N{MULTIPLICATION SIGN}"

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MIN_CALLS = 5
_WARM_UP_CALLS = 2  # since the last turn, the others have evicted this one's data from the caches


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
        calls = sum(map(len, self.rounds))
        return [
            f"{self.median_ms:.3f}",
            f"{low:.3f} to {high:.3f}",
            str(calls),
            f"{statistics.mean(self.other_cpus):.2f}",
        ]


COLUMNS = ["median ms", "medians of the rounds", "calls", "CPUs busy with other work"]


def call_repeatedly(call: Callable[[], object], seconds: float) -> list[float]:
    for _ in range(_WARM_UP_CALLS):
        call()
    durations: list[float] = []
    begun = time.perf_counter()
    while len(durations) < _MIN_CALLS or time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        call()
        durations.append(time.perf_counter() - before)
    return durations


def take_turns(contenders: Mapping[Name, Timed], rounds: int, seconds: float) -> dict[Name, Timings]:
    timings = {name: Timings() for name in contenders}
    for turn in range(rounds):
        for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            contender = contenders[name]
            pids = {os.getpid(), *contender.pids}
            begun, busy_before_s, own_s = time.perf_counter(), busy_s(), _used_s(pids)
            timings[name].rounds.append(contender.durations_s(seconds))
            others_s = (busy_s() - busy_before_s) - (_used_s(pids) - own_s)
            timings[name].other_cpus.append(max(0.0, others_s / (time.perf_counter() - begun)))
    return timings


def differences_ms(slower: Timings, faster: Timings) -> list[float]:
    """Returns the difference of the medians within each round."""
    return [first - second for first, second in zip(slower.medians_ms, faster.medians_ms, strict=True)]


def busy_s() -> float:
    """Returns the CPU time that this machine has spent on anything since it started."""
    user, nice, system, _idle, _waiting, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(rest)) / _TICKS_PER_S


def _used_s(pids: Iterable[int]) -> float:
    """Returns the CPU time of these processes, over all threads."""
    ticks = 0
    for pid in pids:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])  # utime and stime, fields 14 and 15 of proc(5)
    return ticks / _TICKS_PER_S


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def cores_for(threads: int) -> list[int]:
    """Returns the cores to which `threads` threads are pinned. Raises SystemExit if there are not enough."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise SystemExit(f"{threads} threads were requested, but this process may use only {len(allowed)} cores")
    return allowed[:threads]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def largest_difference(first: Sequence[Array], second: Sequence[Array]) -> int:
    return max(int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max()) for a, b in zip(first, second, strict=True))
