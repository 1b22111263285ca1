"""Tests the tasks of a parallel region: each is computed exactly once, whichever threads are available."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.system.cores import usable_cores
from tests.support.native import SANITIZERS, run_ctest
from tests.support.runtime_threads import (
    Loop,
    Nap,
    RuntimeThreads,
    allowed,
    mask,
    tasks_of_process,
    workers,
)

CORES = [min(core) for core in usable_cores()]
SHARED = [CORES[0], CORES[-1]]  # the same processor twice if there is only one


@given(iterations=st.integers(0, 100), tasks=st.integers(0, 120), cores=st.integers(1, 7), count=st.integers(0, 8))
def test_each_iteration_is_computed_once(
    threads: RuntimeThreads, iterations: int, tasks: int, cores: int, count: int
) -> None:
    loop = Loop.of(iterations)
    with threads.team(SHARED, budget=cores) as team, team.lease(count):
        assert threads.launch("compute", loop, tasks) == 0
    assert loop.computed == [1] * iterations
    assert loop.num_task == tasks or tasks == 0


def test_threads_share_the_iterations(threads: RuntimeThreads) -> None:
    loop = Loop.of(40, pause_us=1000)
    with threads.team(SHARED, budget=2) as team, team.lease(2):
        threads.launch("compute", loop)
    assert len(set(loop.threads[:40])) == 2
    assert loop.computed == [1] * 40


def test_threads_have_contiguous_parts(threads: RuntimeThreads) -> None:
    """The parts are contiguous even if one thread has taken tasks of the other, because the other took half of its time
    to wake up."""
    loop = Loop.of(64, pause_us=500)
    with threads.team(SHARED, budget=2) as team, team.lease(2):
        threads.launch("compute", loop)
    by = loop.threads[:64]
    assert sum(one != other for one, other in pairwise(by)) <= 1


@pytest.mark.parametrize("count", [None, 1])
def test_a_call_of_one_thread_is_one_task_of_the_caller(threads: RuntimeThreads, count: int | None) -> None:
    loop, before = Loop.of(10), tasks_of_process()
    if count is None:
        threads.launch("compute", loop)  # this launch has no lease
    else:
        with threads.team(SHARED, budget=2) as team, team.lease(count):
            threads.launch("compute", loop)
    assert (loop.num_task, loop.computed) == (1, [1] * 10)
    assert set(loop.threads[:10]) == {threading.get_native_id()}
    assert tasks_of_process() <= before


def test_nested_regions_are_computed_by_the_threads_that_launch_them(threads: RuntimeThreads) -> None:
    outer, inner = Loop.of(8, pause_us=1000), [Loop.of(5) for _ in range(8)]
    nested = (Loop * 8)(*inner)
    outer.launch, outer.nested = ctypes.cast(threads["launch"], ctypes.c_void_p), ctypes.addressof(nested)
    with threads.team(SHARED, budget=2) as team, team.lease(2):
        assert threads.launch("nest", outer, 8) == 0
    for index, loop in enumerate(inner):
        assert loop.computed == [1] * 5
        assert set(loop.threads[:5]) == {outer.threads[index]}
        assert nested[index].num_task == 1


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("tasks", [0, 1, 8])
def test_the_error_of_a_task_is_that_of_the_region(threads: RuntimeThreads, cores: int, tasks: int) -> None:
    loop = Loop.of(8, errors=[0, 0, 0, 7, 0, 0, 0, 0])
    with threads.team(SHARED, budget=cores) as team, team.lease():
        assert threads.launch("compute", loop, tasks) == 7
        assert max(loop.computed) == 1
        assert threads.launch("compute", Loop.of(8)) == 0  # the next region is not affected by the earlier one


def test_workers_that_have_nothing_to_do_sleep(threads: RuntimeThreads) -> None:
    before = workers()
    with threads.team(SHARED, budget=2) as team, team.lease():
        threads.launch("compute", Loop.of(40))
        (worker,) = workers() - before

        def state() -> str:
            return Path(f"/proc/self/task/{worker}/stat").read_text().rpartition(")")[2].split()[0]

        until = time.monotonic() + 30
        while state() != "S":
            assert time.monotonic() < until
            time.sleep(0.001)


@pytest.mark.skipif(len(CORES) < 2, reason="one core")
def test_a_descheduled_worker_gets_the_core_of_the_caller(
    threads: RuntimeThreads, elsewhere: Callable[[Callable[[], Any]], Any]
) -> None:
    def run_call() -> tuple[Nap, set[int]]:
        before = workers()
        os.sched_setaffinity(0, CORES[:1])
        with threads.team(CORES[:2], budget=2) as team, team.lease():
            nap = Nap(threading.get_native_id(), 0, 100)
            assert threads.launch("nap", nap, 2) == 0
            (worker,) = workers() - before
            return nap, allowed(worker)

    nap, afterwards = elsewhere(run_call)
    assert (mask(nap.before), mask(nap.after)) == ({CORES[1]}, {CORES[0]})
    assert afterwards == {CORES[1]}


def test_a_forked_child_starts_its_own_threads(threads: RuntimeThreads) -> None:
    with threads.team(SHARED, budget=3) as team:
        with team.lease(3):
            threads.launch("compute", Loop.of(10))
        assert threads["launch_in_child"](team.handle, 3, threads.task("compute"), ctypes.byref(Loop.of(40))) == 0
        with team.lease(2):  # the child inherits the lease
            assert threads["launch_in_child"](team.handle, 3, threads.task("compute"), ctypes.byref(Loop.of(40))) == 0
            threads.launch("compute", loop := Loop.of(10))
        assert loop.computed == [1] * 10
        assert team.free == 3


def test_a_forked_child_does_not_wait_for_calls_of_its_parent(threads: RuntimeThreads) -> None:
    held, over = threading.Event(), threading.Event()
    with threads.team(SHARED, budget=2) as team:

        def hold() -> None:
            with team.lease(2):
                held.set()
                over.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        try:
            assert threads["launch_in_child"](team.handle, 2, threads.task("compute"), ctypes.byref(Loop.of(40))) == 0
        finally:
            over.set()
            holder.join()


@given(sizes=st.lists(st.integers(0, 1 << 20), min_size=1, max_size=12))
def test_workspaces_are_aligned_and_do_not_overlap(threads: RuntimeThreads, sizes: list[int]) -> None:
    taken = [threads["allocate"](ctypes.c_uint64(size)) for size in sizes]
    for index, (address, size) in enumerate(zip(taken, sizes, strict=True)):
        assert address % 64 == 0
        ctypes.memset(address, index, size)
    for index, (address, size) in enumerate(zip(taken, sizes, strict=True)):
        assert ctypes.string_at(address, size) == bytes([index]) * size
    for address in reversed(taken):
        assert threads["release"](ctypes.c_void_p(address)) == 0


def test_a_workspace_is_reused(threads: RuntimeThreads) -> None:
    first = threads["allocate"](ctypes.c_uint64(5000))
    threads["release"](ctypes.c_void_p(first))
    assert threads["allocate"](ctypes.c_uint64(4990)) == first
    threads["release"](ctypes.c_void_p(first))


def test_a_workspace_larger_than_memory_is_null(threads: RuntimeThreads) -> None:
    assert threads["allocate"](ctypes.c_uint64((1 << 64) - 1)) is None


def test_many_calls_at_once_do_no_harm() -> None:
    run_ctest("stress")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_sanitizers_find_no_harm_in_many_calls_at_once(sanitizers: str) -> None:
    run_ctest("stress", sanitizers)
