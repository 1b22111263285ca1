"""Threads of predictions: how many compute at a time in this process, and which cores they run on.

The runtime does it (`service/native/runtime/team.h`): workers that stay near a cache and out of the caller's way, and a
budget of cores that calls acquire, first come, first served. Answers do not depend on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from service.core.cores import Core, affordable_threads, by_cache, computing_cores
from service.core.errors import InvalidInput
from service.runtime.octet_library import NativeTeam


def team_of(cores: Iterable[Core], budget: int = 0, window_s: float = 0.1) -> NativeTeam:
    """The threads that compute on `cores`.

    Args:
        budget: cores that compute at a time; 0: all.
        window_s: calls that follow each other within it count as concurrent, and share the cores.
    """
    placed = [
        (processor, min(core), cache)
        for cache, group in enumerate(by_cache(cores))
        for core in group
        for processor in sorted(core)
    ]
    return NativeTeam.of(placed, budget, window_s)


class Threads:
    """A number of threads: `with threads:` waits for their cores, and they share each kernel that is called inside.

    Models enter it for every call. Who measures enters it around all that is not to be disturbed. Not for `async`.

    Attributes:
        team: whose cores they are.
    """

    def __init__(self, count: int = 0, team: NativeTeam | None = None) -> None:
        """
        Args:
            count: 0 for as many as compute at a time, which is also the most.
            team: by default that of all cores that this process may use.
        """
        self.team = team or NativeTeam.of_this_process()
        self.count = min(count or self.team.cores, self.team.cores)

    def __enter__(self) -> Threads:
        self.team.enter(self.count)
        return self

    def __exit__(self, *_: object) -> None:
        self.team.leave()


def confined(count: int) -> Threads:
    """Threads of a measurement: each has a core, and this thread and all that it starts stay on those cores, for good.

    Args:
        count: 0 for as many as this process may compute on.

    Raises:
        InvalidInput: it may not compute on so many.
    """
    most = affordable_threads()
    if count > most:
        raise InvalidInput(f"this process may use {most} cores, and {count} threads want one each")
    cores: Sequence[Core] = [frozenset([min(core)]) for core in computing_cores()[: count or most]]
    os.sched_setaffinity(0, Core().union(*cores))
    return Threads(0, team_of(cores))
