"""The requests that wait for one model, in the order in which they are served. Knows no threads and no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar

# One call in so many begins with the request that has waited longest, whatever its level: a request is served at the
# latest after so many calls for each one that was there before it, however many of higher levels come meanwhile.
OLDEST_EVERY = 8


class Waiting(Protocol):
    """What waits.

    Attributes:
        level: 1 is served first.
        samples: how many it asks for.
        deadline_s: by the clock that `take` is given; None if it has none.
        ticket: its place in the order of arrival; the backlog gives it.
    """

    level: int
    samples: int
    deadline_s: float | None
    ticket: int


Request = TypeVar("Request", bound=Waiting)


class Backlog(Generic[Request]):
    """Requests by level, and by arrival within one.

    Attributes:
        samples: for which all of them ask.
    """

    def __init__(self, levels: int) -> None:
        self._levels: list[deque[Request]] = [deque() for _ in range(levels)]
        self._tickets, self._calls = count(), 0
        self.samples = 0

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    @property
    def oldest(self) -> Request | None:
        heads = [level[0] for level in self._levels if level]
        return min(heads, key=lambda head: head.ticket) if heads else None

    def add(self, request: Request) -> None:
        request.ticket = next(self._tickets)
        self._levels[request.level - 1].append(request)
        self.samples += request.samples

    def remove(self, request: Request) -> None:
        """Takes out one that waits."""
        self._levels[request.level - 1].remove(request)
        self.samples -= request.samples

    def take(self, now_s: float, most: int, fits: Callable[[int], bool]) -> tuple[list[Request], list[Request]]:
        """Takes out those that are served next, in one call; and of those before them the ones that are too late.

        Args:
            now_s: whose deadline is not after it is too late.
            most: samples of a call that serves several requests.
            fits: whether so many samples of several requests make one call. The most that do are taken.
        """
        self._calls += 1
        chosen: list[Request] = []
        late: list[Request] = []
        samples = taken = 0
        for request in self._in_order():
            if request.deadline_s is not None and request.deadline_s <= now_s:
                late.append(request)
                continue
            samples += request.samples
            if chosen and samples > most:
                break
            chosen.append(request)
            if len(chosen) == 1 or fits(samples):
                taken = len(chosen)
        del chosen[taken:]
        for request in (*chosen, *late):
            self.remove(request)
        return chosen, late

    def _in_order(self) -> Iterator[Request]:
        first = self.oldest if self._calls % OLDEST_EVERY == 0 else None
        if first is not None:
            yield first
        for level in self._levels:
            for request in level:
                if request is not first:
                    yield request
