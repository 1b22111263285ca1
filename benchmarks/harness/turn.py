"""A turn of one contestant, a fraction of a second: the time of each call, and the other load meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness.machine import busy_s
from benchmarks.harness.turns import time_calls

MIN_CALLS = 3
_WARM_UP_S = 0.03  # the other contestants have evicted this one's data from the caches, and changed the clock rate


@dataclass(frozen=True)
class Turn:
    """The times of the calls of one turn.

    Attributes:
        other_cpus: the number of CPUs that other processes (or other machines on this hardware) kept busy meanwhile.
    """

    calls: int
    median_ms: float
    min_ms: float
    p90_ms: float
    other_cpus: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def take_turn(call: Callable[[], object], seconds: float) -> Turn:
    time_calls(call, _WARM_UP_S)
    busy, own, begun = busy_s(), time.process_time(), time.perf_counter()
    durations = time_calls(call, seconds, MIN_CALLS)
    elapsed = time.perf_counter() - begun
    other_s = (busy_s() - busy) - (time.process_time() - own)
    return summarize(durations, max(0.0, other_s / elapsed))


def summarize(durations_s: list[float], other_cpus: float) -> Turn:
    ordered = sorted(durations_s)
    return Turn(
        calls=len(ordered),
        median_ms=1e3 * statistics.median(ordered),
        min_ms=1e3 * ordered[0],
        p90_ms=1e3 * ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)],
        other_cpus=round(other_cpus, 3),
    )
