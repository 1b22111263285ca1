"""Tests that cores are granted in turn, and that the threads of a call use separate cores. The tests compare affinity
masks, never times.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from service.core.system.cores import affordable_threads, usable_cores
from tests.support.runtime_threads import Loop, RuntimeThreads, Team, allowed, tasks_of_process, workers

CORES = [min(core) for core in usable_cores()]
GIVE_UP_S = 60
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core")


def wait_for(team: Team, waiting: int) -> None:
    until = time.monotonic() + GIVE_UP_S
    while team.waiting != waiting:
        assert time.monotonic() < until
        time.sleep(0.001)


class Caller:
    """A thread that holds at most one lease, until the test releases it."""

    def __init__(self, team: Team) -> None:
        self._team, self._pool, self._held = team, ThreadPoolExecutor(1), ExitStack()

    def acquire(self, cores: int) -> int:
        """Returns how many cores the caller got."""

        def acquire() -> int:
            free = self._team.free
            self._held.enter_context(self._team.lease(cores))
            return free - self._team.free

        return self._pool.submit(acquire).result(GIVE_UP_S)

    def release(self) -> None:
        self._pool.submit(self._held.close).result(GIVE_UP_S)
        self._pool.shutdown()


@pytest.mark.parametrize(
    ("cores", "calls"), [(1, [1, 1, 1]), (6, [3, 1])], ids=["one-after-the-other", "narrow-behind-wide"]
)
def test_no_call_is_overtaken(threads: RuntimeThreads, cores: int, calls: list[int]) -> None:
    served = list[int]()
    with threads.team([0] * cores) as team:
        holder = Caller(team)
        holder.acquire(max(1, cores - 1))

        def call(position: int) -> None:
            with team.lease(calls[position]):
                served.append(position)

        callers = [threading.Thread(target=call, args=(position,)) for position in range(len(calls))]
        for waiting, caller in enumerate(callers, 1):
            caller.start()
            wait_for(team, waiting)  # a call waits even if it needs only the one core that is free
        assert served == []
        holder.release()
        for caller in callers:
            caller.join(timeout=GIVE_UP_S)
    assert sorted(served) == list(range(len(calls)))
    assert cores > 1 or served == sorted(served)  # on one core, each call ends before the next begins


def test_concurrent_calls_and_the_next_one_get_equal_shares(threads: RuntimeThreads) -> None:
    with threads.team([0] * 4, window_s=600) as team:
        callers = [Caller(team) for _ in range(3)]
        assert [caller.acquire(cores) for caller, cores in zip(callers, (1, 4, 4), strict=True)] == [1, 2, 1]
        for caller in callers:
            caller.release()
        for _ in range(2):
            alone = Caller(team)
            assert alone.acquire(4) == 1
            alone.release()


def test_a_call_that_has_been_alone_for_a_while_takes_all_cores(threads: RuntimeThreads) -> None:
    with threads.team([0] * 4, window_s=0.01) as team:
        callers = [Caller(team) for _ in range(2)]
        for caller, cores in zip(callers, (1, 4), strict=True):
            caller.acquire(cores)
        for caller in callers:
            caller.release()
        time.sleep(0.011)
        alone = Caller(team)
        assert alone.acquire(4) == 4
        alone.release()


def test_concurrency_is_forgotten_while_two_calls_continue(threads: RuntimeThreads) -> None:
    with threads.team([0] * 8, window_s=2) as team:
        crowd = [Caller(team) for _ in range(4)]
        for caller in crowd:
            caller.acquire(1)
        for caller in crowd[1:]:
            caller.release()

        def part() -> int:
            caller = Caller(team)
            cores = caller.acquire(8)
            caller.release()
            return cores

        parts = [part()]
        until = time.monotonic() + GIVE_UP_S
        while parts[-1] == 2 and time.monotonic() < until:
            time.sleep(0.01)
            parts.append(part())
        assert (parts[0], parts[-1], part()) == (2, 4, 4)
        crowd[0].release()


def test_never_more_threads_compute_than_there_are_cores(threads: RuntimeThreads) -> None:
    before, most, over = tasks_of_process(), 0, threading.Event()
    with threads.team([0] * 3) as team:

        def call(cores: int) -> None:
            for _ in range(200):
                with team.lease(cores):
                    threads.launch("compute", Loop.of(4))

        def watch() -> None:
            nonlocal most
            while not over.is_set():
                most = max(most, len(workers() - before))

        watcher = threading.Thread(target=watch)
        watcher.start()
        with team.lease(3):  # runs alone, because concurrent calls would get one core each
            threads.launch("compute", Loop.of(40, pause_us=1000))
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(call, [1, 2, 3, 1, 2, 3]))
        over.set()
        watcher.join()
        assert (team.free, team.waiting) == (3, 0)
    assert most == 2
    assert not workers() - before


def test_nested_calls_share_the_held_cores(threads: RuntimeThreads) -> None:
    with threads.team([0, 0]) as team:
        free = []
        with team.lease(1):
            with team.lease(
                2
            ):  # if a nested lease waited for the cores of the outer one, the thread would wait for itself
                free.append(team.free)
                threads.launch("compute", loop := Loop.of(4))
            free.append(team.free)
        assert [*free, team.free] == [1, 1, 2]
        assert loop.num_task == 1


def test_nested_calls_of_another_team_use_its_cores(threads: RuntimeThreads) -> None:
    with threads.team([0]) as one, threads.team([0, 0]) as other, one.lease():
        with other.lease():
            assert (one.free, other.free) == (0, 0)
            threads.launch("compute", of_other := Loop.of(4))
        threads.launch("compute", of_one := Loop.of(4))
        assert (one.free, other.free) == (0, 2)
    assert (of_one.num_task == 1) != (of_other.num_task == 1)


def test_a_lease_that_was_not_entered_is_not_left(threads: RuntimeThreads) -> None:
    with threads.team([0]) as team:
        threads["octet_team_leave"](team.handle)
        assert team.free == 1


@two_cores
@pytest.mark.parametrize("count", sorted({2, len(CORES)}))
def test_threads_of_a_call_run_on_separate_cores(
    threads: RuntimeThreads, elsewhere: Callable[[Callable[[], Any]], Any], count: int
) -> None:
    def placed() -> list[set[int]]:
        before = workers()
        os.sched_setaffinity(0, CORES[-1:])
        with threads.team(CORES) as team, team.lease(count):
            threads.launch("compute", Loop.of(10))
            return [allowed(worker) for worker in workers() - before]

    masks = elsewhere(placed)
    assert len(masks) == count - 1
    for index, worker in enumerate(masks):
        assert CORES[-1] not in worker
        assert not any(worker & other for other in masks[:index])
        assert worker <= {*CORES}


@two_cores
def test_a_worker_makes_way_for_the_calling_thread(
    threads: RuntimeThreads, elsewhere: Callable[[Callable[[], Any]], Any]
) -> None:
    """The worker moves between two calls, and between two regions of one call."""

    def worker_masks() -> list[set[int]]:
        masks = []
        with threads.team(CORES[:2]) as team:
            before = workers()
            for core in (0, 1, 1, 0):
                with team.lease(2):
                    for processor in (CORES[core], CORES[1 - core]):
                        os.sched_setaffinity(0, [processor])
                        threads.launch("compute", Loop.of(10))
                        (worker,) = workers() - before
                        masks.append(allowed(worker))
        return masks

    first, second = {CORES[0]}, {CORES[1]}
    assert elsewhere(worker_masks) == [second, first, first, second, first, second, second, first]


@two_cores
def test_workers_stay_around_the_cache_of_the_calling_thread(
    threads: RuntimeThreads, elsewhere: Callable[[Callable[[], Any]], Any]
) -> None:
    def worker_masks() -> list[set[int]]:
        masks = []
        cores = [CORES[0], CORES[0], CORES[1], CORES[1]]  # pretends that each core is two
        with threads.team(cores, caches=[7, 7, 9, 9]) as team:
            before = workers()
            for core in CORES[:2]:
                os.sched_setaffinity(0, [core])
                with team.lease(2):
                    threads.launch("compute", Loop.of(10))
                    masks += [allowed(worker) for worker in workers() - before]
            with team.lease(3):
                threads.launch("compute", Loop.of(10))
                masks.append(set().union(*(allowed(worker) for worker in workers() - before)))
        return masks

    assert elsewhere(worker_masks) == [{CORES[0]}, {CORES[1]}, {*CORES[:2]}]


def test_the_calling_threads_mask_is_unchanged(
    threads: RuntimeThreads, elsewhere: Callable[[Callable[[], Any]], Any]
) -> None:
    def is_mask_unchanged() -> bool:
        mask = os.sched_getaffinity(0)
        with threads.team([*CORES, *CORES], budget=2) as team, team.lease():
            threads.launch("compute", Loop.of(10))
            during = os.sched_getaffinity(0)
        return mask == during == os.sched_getaffinity(0)

    assert elsewhere(is_mask_unchanged)


def test_processors_of_one_core_are_one_share(threads: RuntimeThreads) -> None:
    made = threads.new_team([0, 1, 2, 3], [5, 6, 5, 6], [0, 0, 0, 0], 0)
    assert made is not None
    team = Team(threads, made)
    assert team.cores == 2
    threads["octet_team_free"](team.handle)


@pytest.mark.parametrize(
    ("processors", "budget", "window_s"), [([], 0, 0.1), ([0], -1, 0.1), ([-1], 0, 0.1), ([0], 0, -1.0)]
)
def test_an_invalid_team_is_refused(
    threads: RuntimeThreads, processors: list[int], budget: int, window_s: float
) -> None:
    zeros = [0] * len(processors)
    assert threads.new_team(processors, zeros, zeros, budget, window_s) is None
    assert threads["octet_error"]()


def test_the_default_team_has_the_cores_that_this_process_may_use(threads: RuntimeThreads) -> None:
    team = Team(threads, threads["octet_team_default"]())
    assert team.cores == affordable_threads()
