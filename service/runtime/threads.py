"""Threads of predictions: how many compute at a time in this process, and which cores they run on.

TVM makes a pool of workers for every thread that calls a kernel. Left to itself it pins them to processors by number,
whether this process may use those or not, and has the calling thread, which computes too, run beside one of them.

**Placement.** The cores around a cache, as many such as it takes, are divided among the threads of a call: what a layer
writes the next one reads, and between caches that takes longer than to compute it. A worker stays on its share, and no
other thread of the call runs there. Where there are more cores than threads a share is several, so that the kernel can
evade other processes. The calling thread is not ours, and its mask is left alone: where it runs is looked up before
each call, and the worker whose share that is exchanges it for that of the caller.

**Core budget.** A call acquires as many cores as it has threads, and waits first come, first served until they are
free. So there are never more computing threads than cores, however many models are called at once, from whatever
threads. A call that is alone may acquire all cores. Concurrent calls, and those that follow soon, get an equal share
each: no short call waits for a long one again and again, and no thread waits for others at the end of each loop.
Answers do not depend on it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from service.core.cores import Core, affordable_threads, by_cache, usable_cores
from service.core.errors import InvalidInput
from service.native import CoreBudget, ThreadTeam
from service.runtime import machine


class _Pool:
    """The workers that TVM makes for one calling thread, as soon as it needs one, and then never more of them."""

    def __init__(self, cores: Sequence[Sequence[Core]], most: int) -> None:
        """
        Args:
            cores: to be divided, by cache.
            most: threads of any call.
        """
        self.cores, self.most = cores, most
        self.threads = 0  # that share its kernels
        self.shares: list[Core] = []  # by thread; that of the calling one, which is 0, comes first
        self.reach = Core()  # where this thread may run and need not be followed
        self.workers: dict[int, int] = {}  # by thread, their numbers in the kernel

    def prepare(self, threads: int) -> None:
        """From here on the calling thread and `threads` - 1 workers share each kernel that it calls."""
        if threads != self.threads:
            machine.config_threads(threads, self.most)
            self.threads = threads
        if threads > 1:
            processor = machine.processor()
            if threads != len(self.shares) or processor not in self.reach:
                self._divide(threads, processor)
            self._make_way(processor)

    def _divide(self, threads: int, processor: int) -> None:
        """Gives each thread its share, of cores around the cache of `processor` if those are enough."""
        near: list[Core] = []
        for group in sorted(self.cores, key=lambda group: not any(processor in core for core in group)):
            if len(near) < threads:
                near += group
        shares = self.shares = [Core().union(*near[thread::threads]) for thread in range(threads)]
        self.reach = Core().union(*near, [processor])
        workers = self.workers = {}

        def stay(thread: int) -> None:
            if thread:
                workers[thread] = threading.get_native_id()
                with suppress(OSError):
                    os.sched_setaffinity(0, shares[thread])

        machine.on_each_thread(stay)

    def _make_way(self, processor: int) -> None:
        """The worker that may run on `processor`, where this thread runs, exchanges shares with it."""
        shares = self.shares
        if processor in shares[0]:
            return
        for thread, worker in self.workers.items():
            if processor in shares[thread]:
                with suppress(OSError):  # the compiler's sandbox forbids it, and is in no hurry
                    os.sched_setaffinity(worker, shares[0])
                    shares[0], shares[thread] = shares[thread], shares[0]
                return


def team_of(cores: Sequence[Sequence[Core]], budget: CoreBudget) -> ThreadTeam:
    """The threads that compute on `cores`, by cache, within `budget`."""
    most = budget.cores()

    def prepare(pool: _Pool | None, threads: int) -> list[Any]:
        pool = pool or _Pool(cores, most)
        pool.prepare(threads)
        return [pool, *(sorted(pool.shares[0]) if threads > 1 else ())]

    return ThreadTeam.of(budget, prepare)


# At import: a thread that runs a kernel without `Threads` has its mask narrowed by TVM.
OF_THIS_PROCESS = team_of(by_cache(usable_cores()), CoreBudget.of(affordable_threads()))


class Threads:
    """A number of threads: `with threads:` waits for their cores, and they share each kernel that is called inside.

    Models enter it for every call. Who measures enters it around all that is not to be disturbed. Not for `async`.

    Attributes:
        team: whose cores they are.
    """

    def __init__(self, count: int = 0, team: ThreadTeam = OF_THIS_PROCESS) -> None:
        """`count`: 0 for as many as compute at a time in this process, which is also the most."""
        self.team = team
        self.count = min(count or team.cores(), team.cores())

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
    cores = [frozenset([min(core)]) for core in usable_cores()[: count or most]]
    os.sched_setaffinity(0, Core().union(*cores))
    return Threads(0, team_of(by_cache(cores), CoreBudget.of(len(cores))))
