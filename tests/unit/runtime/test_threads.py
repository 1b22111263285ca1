"""Tests of teams and leases of cores in Python. Their behaviour is tested in tests/unit/native/runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.core.errors import InvalidInput
from service.core.system.cores import affordable_threads, usable_cores
from service.runtime.octet_library import NativeTeam
from service.runtime.threads import Threads, confined, team_of
from tests.support.runtime_threads import allowed, tasks_of_process, workers

CORES = usable_cores()
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core")


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs a function in a new thread, always the same one, whose affinity mask may be changed."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(function).result(timeout=60)


def test_a_call_has_at_most_as_many_threads_as_compute_at_the_same_time() -> None:
    team = team_of(CORES, budget=3)
    assert [Threads(count, team).count for count in (0, 1, 3, 4)] == [3, 1, 3, 3]
    assert Threads().count == affordable_threads()


def test_cores_are_free_again_after_an_error() -> None:
    team = team_of(CORES, budget=1)

    def fail() -> None:
        with Threads(1, team):
            assert team.free_cores == 0
            raise ValueError("of the model")

    with pytest.raises(ValueError, match="of the model"):
        fail()
    assert team.free_cores == 1


def test_nested_calls_share_the_acquired_cores() -> None:
    team, free = team_of(CORES, budget=2), []
    with Threads(1, team):
        with Threads(2, team):  # the thread would wait for itself if it acquired cores again
            free.append(team.free_cores)
        free.append(team.free_cores)
    assert [*free, team.free_cores] == [1, 1, 2]


def test_waiting_for_cores_lets_other_threads_of_python_run() -> None:
    team = team_of(CORES, budget=1)
    with ThreadPoolExecutor(1) as pool:
        with Threads(1, team):
            call = pool.submit(lambda: Threads(1, team).__enter__().__exit__())
            while not team.waiting:  # this loop would hang if the other thread held the interpreter lock while it waits
                pass
        call.result(timeout=60)


@two_cores
def test_the_team_gets_processors_of_a_core_and_cores_of_a_cache(
    elsewhere: Callable[[Callable[[], Any]], Any],
) -> None:
    def placed() -> tuple[list[set[int]], int]:
        before, team = workers(), team_of(CORES)
        os.sched_setaffinity(0, CORES[0])
        with Threads(0, team):
            return [allowed(worker) for worker in workers() - before], team.cores

    masks, cores = elsewhere(placed)
    assert cores == len(CORES)
    assert sorted(map(sorted, masks)) == sorted(map(sorted, CORES[1:]))


def test_one_thread_needs_no_workers() -> None:
    before = tasks_of_process()
    with Threads(1, team_of(CORES)):
        assert tasks_of_process() <= before


def test_the_process_has_one_team() -> None:
    assert NativeTeam.of_this_process() is NativeTeam.of_this_process() is Threads().team


@pytest.mark.parametrize("count", [0, 1, len(CORES)])
def test_a_measurement_stays_on_its_cores(elsewhere: Callable[[Callable[[], Any]], Any], count: int) -> None:
    def measured() -> tuple[int, set[int], list[set[int]]]:
        before, threads = workers(), confined(count)
        with threads:
            return threads.count, os.sched_getaffinity(0), [allowed(worker) for worker in workers() - before]

    threads, mask, masks = elsewhere(measured)
    assert threads == (count or len(CORES)) == len(mask) == len(masks) + 1
    assert mask <= frozenset().union(*CORES)
    assert all(len(worker) == 1 and worker <= mask for worker in masks)


def test_a_measurement_on_more_cores_than_exist_is_rejected() -> None:
    with pytest.raises(InvalidInput, match=f"{len(CORES)} cores"):
        confined(len(CORES) + 1)
