"""Threads of predictions: how many compute at the same time in this process, and which cores they run on.

The runtime implements this (`service/native/runtime/team.h`): its workers stay near a cache and avoid the caller's
core, and calls acquire cores from a budget, first come, first served. Results of models do not depend on the number of
threads or on the cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from service.core.errors import InvalidInput
from service.core.system.cores import Core, affordable_threads, by_cache, computing_cores
from service.runtime.octet_library import NativeTeam


def team_of(cores: Iterable[Core], budget: int = 0, window_s: float = 0.1) -> NativeTeam:
    """Returns a team of threads that compute on `cores`.

    Args:
        budget: the number of cores that compute at the same time; 0: all.
        window_s: calls that follow each other within this time count as concurrent, and share the cores.
    """
    processors = [
        (processor, min(core), cache)
        for cache, group in enumerate(by_cache(cores))
        for core in group
        for processor in sorted(core)
    ]
    return NativeTeam.of(processors, budget, window_s)


class Threads:
    """A number of threads that share the work of kernels.

    `with threads:` waits for as many cores, and every kernel that is called in the block is shared by these threads. A
    model enters this context for every call. A measurement enters it around everything that must not be disturbed. Not
    for `async`.

    Attributes:
        team: the team that has the cores.
    """

    def __init__(self, count: int = 0, team: NativeTeam | None = None) -> None:
        """
        Args:
            count: 0 for the number of cores that the team uses at the same time, which is also the maximum.
            team: the team whose cores are used. The default has all cores that this process may use.
        """
        self.team = team or NativeTeam.of_this_process()
        self.count = min(count or self.team.cores, self.team.cores)

    def __enter__(self) -> Threads:
        self.team.enter(self.count)
        return self

    def __exit__(self, *_: object) -> None:
        self.team.leave()


def confined(count: int) -> Threads:
    """Returns threads for a measurement: each has a core, and this thread and all that it starts stay on those cores
    permanently.

    Args:
        count: 0 for as many as this process may compute on.

    Raises:
        InvalidInput: this process may not compute on so many cores.
    """
    most = affordable_threads()
    if count > most:
        raise InvalidInput(f"this process may use {most} cores, but {count} threads need one each")
    cores: Sequence[Core] = [frozenset([min(core)]) for core in computing_cores()[: count or most]]
    os.sched_setaffinity(0, Core().union(*cores))
    return Threads(0, team_of(cores))
