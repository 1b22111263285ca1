"""Cores are lent in turn, and the threads of a call are kept apart. What is asserted is masks, never times."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.core.cores import usable_cores
from service.core.errors import InvalidInput
from service.native import CoreBudget
from service.runtime.threads import OF_THIS_PROCESS, Threads, confined, team_of
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually

CORES = usable_cores()
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core")


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs a function in a new thread, always the same, which no test before has placed."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(timeout=WORK_TIMEOUT_S)


def wait_for(budget: CoreBudget, waiting: int) -> None:
    until = time.monotonic() + GIVE_UP_S
    while budget.waiting() != waiting:
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("cores", "calls"), [(1, [1, 1, 1]), (6, [3, 1])], ids=["one-after-the-other", "narrow-behind-wide"]
)
def test_nobody_is_overtaken(cores: int, calls: list[int]) -> None:
    budget, served = CoreBudget.of(cores), list[int]()
    held = budget.acquire(max(1, cores - 1))

    def call(place: int) -> None:
        taken = budget.acquire(calls[place])
        served.append(place)
        budget.release(taken)

    threads = [threading.Thread(target=call, args=(place,)) for place in range(len(calls))]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        wait_for(budget, waiting)  # also who would be content with the one core that is free
    assert served == []
    budget.release(held)
    for thread in threads:
        thread.join(timeout=GIVE_UP_S)
    assert sorted(served) == list(range(len(calls)))
    assert cores > 1 or served == sorted(served)  # on one core each ends before the next begins


def test_calls_that_meet_take_equal_parts_and_so_does_the_next() -> None:
    budget = CoreBudget.of(4, window_s=600)
    taken = [budget.acquire(1), budget.acquire(4)]
    assert taken == [1, 2]
    taken.append(budget.acquire(4))
    assert taken[2] == 1
    for cores in taken:
        budget.release(cores)
    budget.release(budget.acquire(4))
    assert budget.acquire(4) == 1


def test_a_call_that_has_been_alone_for_a_while_takes_all_cores() -> None:
    budget = CoreBudget.of(4, window_s=0.01)
    for cores in [budget.acquire(1), budget.acquire(4)]:
        budget.release(cores)
    time.sleep(0.011)
    assert budget.acquire(4) == 4


def test_a_crowd_is_forgotten_while_two_go_on_to_meet() -> None:
    budget = CoreBudget.of(8, window_s=2.0)
    crowd = [budget.acquire(1) for _ in range(4)]
    for cores in crowd[1:]:
        budget.release(cores)

    def part() -> int:
        cores = budget.acquire(8)
        budget.release(cores)
        return cores

    parts = [part()]

    def has_changed() -> bool:
        parts.append(part())
        return parts[-1] != 2

    eventually(has_changed)
    assert (parts[0], parts[-1], part()) == (2, 4, 4)


def test_never_more_cores_are_lent_than_there_are() -> None:
    budget, lock = CoreBudget.of(3), threading.Lock()
    lent, most = 0, 0

    def call(cores: int) -> None:
        nonlocal lent, most
        for _ in range(200):
            taken = budget.acquire(cores)
            with lock:
                lent += taken
                most = max(most, lent)
            with lock:
                lent -= taken
            budget.release(taken)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, [1, 2, 3, 1, 2, 3]))
    assert (lent, budget.free()) == (0, 3)
    assert most <= 3


def test_no_call_has_more_threads_than_compute_at_a_time() -> None:
    of = team_of([CORES], CoreBudget.of(3))
    assert [Threads(count, of).count for count in (0, 1, 3, 4)] == [3, 1, 3, 3]
    assert Threads().count == OF_THIS_PROCESS.cores() <= len(CORES)


def test_cores_are_free_again_after_an_error() -> None:
    budget = CoreBudget.of(1)
    of = team_of([CORES], budget)
    with pytest.raises(ValueError, match="of the model"), Threads(1, of):
        raise ValueError("of the model")
    assert budget.free() == 1


def test_inside_calls_share_the_cores_that_are_held(elsewhere: Callable[[Callable[[], Any]], Any]) -> None:
    def held() -> list[int]:
        budget, free = CoreBudget.of(2), []
        of = team_of([[*CORES, *CORES]], budget)
        with Threads(1, of):
            with Threads(2, of):  # would wait for itself
                free.append(budget.free())
            free.append(budget.free())
        return [*free, budget.free()]

    assert elsewhere(held) == [1, 1, 2]


def allowed(task: int) -> set[int]:
    """The processors that the kernel lets a thread of this process run on."""
    status = Path(f"/proc/self/task/{task}/status").read_text()
    ranges = re.findall(r"(\d+)(?:-(\d+))?", re.findall("Cpus_allowed_list:(.*)", status)[0])
    return {cpu for first, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def tasks() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


@two_cores
@pytest.mark.parametrize("threads", sorted({2, len(CORES)}))
def test_threads_of_a_call_have_cores_of_their_own(elsewhere: Callable[[Callable[[], Any]], Any], threads: int) -> None:
    def placed() -> tuple[set[int], list[set[int]], set[int], int]:
        of, mask, before = team_of([CORES], CoreBudget.of(len(CORES))), os.sched_getaffinity(0), tasks()
        os.sched_setaffinity(0, CORES[-1])  # the first is where TVM would let it run
        with Threads(threads, of):
            here = allowed(threading.get_native_id())
        os.sched_setaffinity(0, mask)
        workers = of.pool().workers.values()
        return here, [allowed(worker) for worker in workers], set(workers) - before, len(tasks() - before)

    here, workers, made, tasks_made = elsewhere(placed)
    assert here == CORES[-1]
    assert len(workers) == threads - 1 == len(made)
    assert tasks_made == len(CORES) - 1  # enough for calls with more threads
    for place, worker in enumerate(workers):
        assert not worker & here
        assert not any(worker & other for other in workers[:place])
        assert all(core <= worker or not core & worker for core in CORES)
        assert worker <= frozenset().union(*CORES)


@two_cores
def test_a_worker_makes_way_for_the_calling_thread(elsewhere: Callable[[Callable[[], Any]], Any]) -> None:
    def moved() -> list[set[int]]:
        of, mask = team_of([CORES[:2]], CoreBudget.of(2)), os.sched_getaffinity(0)
        masks = []
        for core in (CORES[0], CORES[1], CORES[1], CORES[0]):
            os.sched_setaffinity(0, core)
            with Threads(2, of):
                (worker,) = of.pool().workers.values()
                masks.append(allowed(worker))
        os.sched_setaffinity(0, mask)
        return masks

    assert elsewhere(moved) == [CORES[1], CORES[0], CORES[0], CORES[1]]


@two_cores
def test_workers_stay_around_the_cache_of_the_calling_thread(elsewhere: Callable[[Callable[[], Any]], Any]) -> None:
    def followed() -> list[set[int]]:
        caches = [[core, core] for core in CORES[:2]]  # as if each core were two
        of, mask = team_of(caches, CoreBudget.of(4)), os.sched_getaffinity(0)
        masks = []
        for core in CORES[:2]:
            os.sched_setaffinity(0, core)
            with Threads(2, of):
                masks.append(allowed(of.pool().workers[1]))
        os.sched_setaffinity(0, mask)
        with Threads(3, of):
            masks += [allowed(worker) for worker in of.pool().workers.values()]
        return masks

    first, second, *others = elsewhere(followed)
    assert [first, second] == [*CORES[:2]]
    assert set().union(*others) <= CORES[0] | CORES[1]


def test_the_calling_threads_mask_is_left_alone(elsewhere: Callable[[Callable[[], Any]], Any]) -> None:
    def kept() -> bool:
        of, mask = team_of([[*CORES, *CORES]], CoreBudget.of(2)), os.sched_getaffinity(0)
        with Threads(2, of):
            during = os.sched_getaffinity(0)
        return mask == during == os.sched_getaffinity(0)

    assert elsewhere(kept)


def test_one_thread_needs_no_workers(elsewhere: Callable[[Callable[[], Any]], Any]) -> None:
    def alone() -> set[int]:
        before = tasks()
        with Threads(1, team_of([CORES], CoreBudget.of(len(CORES)))):
            return tasks() - before

    assert elsewhere(alone) == set()


@pytest.mark.parametrize("count", [0, 1, len(CORES)])
def test_a_measurement_stays_on_its_cores(elsewhere: Callable[[Callable[[], Any]], Any], count: int) -> None:
    def measured() -> tuple[int, set[int], list[set[int]]]:
        threads = confined(count)
        with threads:
            workers = threads.team.pool().workers.values()
            return threads.count, os.sched_getaffinity(0), [allowed(worker) for worker in workers]

    threads, mask, workers = elsewhere(measured)
    assert threads == (count or len(CORES)) == len(mask)
    assert mask <= frozenset().union(*CORES)
    assert all(len(worker) == 1 and worker <= mask for worker in workers)


def test_a_measurement_on_more_cores_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidInput, match=f"{len(CORES)} cores"):
        confined(len(CORES) + 1)
