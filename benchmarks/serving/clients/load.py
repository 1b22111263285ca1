"""A load and its outcome, as exchanged between the run and the generator's process."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from benchmarks.harness.wire import LOST

OK, REFUSED = 200, 429


@dataclass(frozen=True)
class Phase:
    """Constant arrivals, `rate` per second for `seconds`."""

    rate: float
    seconds: float


@dataclass(frozen=True)
class Load:
    """One request, sent repeatedly.

    Attributes:
        request: the file with its bytes.
        expected: the file with the expected body of each response; empty if it is not checked.
        connections: of a closed loop: the number of clients. Each sends its next request when the previous one is
            answered, for `seconds`.
        phases: of an open loop, in place of `connections`: the times at which requests are due, however many are in
            progress. A latency is counted from the time when the request was due, so a server that falls behind is
            charged with the whole wait (no coordinated omission).
        warm_up_s: duration of the same load before it counts, in a closed loop only.
        patience_s: how long the generator waits for the last responses.
        latest_s: of an open loop: a request that the generator would send so many seconds after it was due is not sent
            but counted separately, because the server did not cause the delay.
        polls: true if the generator polls while it waits: waking it would take time that the server does not cause.
    """

    host: str
    port: int
    request: str
    expected: str = ""
    connections: int = 0
    seconds: float = 0.0
    phases: list[Phase] = field(default_factory=list)
    warm_up_s: float = 0.2
    patience_s: float = 10.0
    latest_s: float = math.inf
    polls: bool = True

    def arrivals_s(self) -> Iterator[float]:
        """Yields the times at which the requests of the open loop are due, counted from the first."""
        begins = accumulate((phase.seconds for phase in self.phases), initial=0.0)
        for begin, phase in zip(begins, self.phases, strict=False):
            yield from (begin + index / phase.rate for index in range(round(phase.rate * phase.seconds)))


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request.

    Attributes:
        due_s: when the request was due, counted from the load's beginning; in a closed loop, when it was sent.
        status: the HTTP status; `LOST` if no response came.
        right: true if the body is the expected one. Only a 200 can be wrong.
    """

    due_s: float
    latency_s: float
    status: int
    right: bool

    @property
    def is_good(self) -> bool:
        return self.status == OK and self.right


@dataclass(frozen=True)
class Outcome:
    """All results of a load, the time until the last of them, and the number of requests that the generator was too
    slow to send.
    """

    answers: list[Answer]
    elapsed_s: float
    unsent: int = 0

    @property
    def good(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.is_good]

    @property
    def statuses(self) -> dict[str, int]:
        counts = Counter("lost" if answer.status == LOST else str(answer.status) for answer in self.answers)
        return dict(sorted(counts.items()))

    @property
    def wrong(self) -> int:
        return sum(answer.status == OK and not answer.right for answer in self.answers)

    @property
    def per_s(self) -> float:
        return len(self.good) / self.elapsed_s if self.elapsed_s else 0.0

    def latencies_ms(self, status: int = OK) -> list[float]:
        return sorted(1e3 * answer.latency_s for answer in self.answers if answer.status == status)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns the smallest value that at least `percent` percent of the values do not exceed (nearest rank); NaN for no
    values."""
    if not ordered:
        return float("nan")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")
