"""Tests how many threads the tuner assigns to each call, with known durations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.runtime_threads import RuntimeThreads

WAKE_S = 5e-6
MOST_RUNS = 100  # enough for a tuner to decide

Times = Callable[[int, int], float]  # duration of a call in seconds, by its index and number of threads


class Division(ctypes.Structure):
    _fields_ = (("threads", ctypes.c_int32), ("tasks", ctypes.c_int32))


class Tuner:
    def __init__(self, threads: RuntimeThreads, calls: int, most: int) -> None:
        self._library, self._calls = threads, calls
        threads["tuner_new"].restype = ctypes.c_void_p
        threads["tuner_division"].restype = Division
        self._tuner = ctypes.c_void_p(threads["tuner_new"](calls, most))

    def __getattr__(self, name: str) -> Any:
        return self._library[f"tuner_{name}"](self._tuner)

    def pass_runs(self, runs: int) -> None:
        for _ in range(runs):
            self._library["tuner_pass"](self._tuner)

    def run(self, seconds: Sequence[float], granted: int) -> None:
        times = (ctypes.c_double * self._calls)(*seconds)
        self._library["tuner_record"](self._tuner, times, granted, ctypes.c_double(WAKE_S))

    @property
    def divisions(self) -> list[tuple[int, int]]:
        found = [self._library["tuner_division"](self._tuner, call) for call in range(self._calls)]
        return [(division.threads, division.tasks) for division in found]

    def settle(self, times: Times) -> list[tuple[int, int]]:
        """Records runs with these times until the tuner has decided."""
        for _ in range(MOST_RUNS):
            if self.is_done:
                return self.divisions
            self.run([times(call, threads) for call, (threads, _) in enumerate(self.divisions)], self.threads)
        raise AssertionError("it does not decide")


@pytest.fixture
def tuner(threads: RuntimeThreads) -> Iterator[Callable[[int, int], Tuner]]:
    made: list[Tuner] = []

    def new(calls: int, most: int) -> Tuner:
        made.append(Tuner(threads, calls, most))
        return made[-1]

    yield new
    for each in made:
        _ = each.free


def scaling(work_s: float, fork_s: float) -> Times:
    """Returns times of calls that are divided perfectly, at a fixed cost per division."""
    return lambda _, threads: work_s / threads + (fork_s if threads > 1 else 0)


def test_large_calls_get_all_threads(tuner: Callable[[int, int], Tuner]) -> None:
    assert [threads for threads, _ in tuner(3, 4).settle(scaling(1e-3, 1e-6))] == [4, 4, 4]


def test_calls_that_others_would_slow_down_stay_on_one_thread(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(10, 2)
    assert made.settle(scaling(2e-6, 2e-6)) == [(1, 0)] * 10
    assert made.threads == 1  # the other core is left to other callers


def test_each_call_gets_its_own_number(tuner: Callable[[int, int], Tuner]) -> None:
    def times(call: int, threads: int) -> float:
        return scaling(100e-6, 1e-6)(call, threads) if call == 0 else scaling(1e-6, 4e-6)(call, threads)

    made = tuner(2, 2)
    assert [threads for threads, _ in made.settle(times)] == [2, 1]
    assert made.threads == 2


def test_the_number_may_lie_between(tuner: Callable[[int, int], Tuner]) -> None:
    def times(_call: int, threads: int) -> float:
        return 200e-6 / threads + 5e-6 * threads * threads

    assert tuner(1, 16).settle(times)[0][0] == 2


def test_a_run_that_saves_less_than_a_wakeup_stays_on_one_thread(tuner: Callable[[int, int], Tuner]) -> None:
    saves = 0.8 * WAKE_S
    assert tuner(1, 2).settle(lambda _, threads: 12e-6 - (saves if threads > 1 else 0)) == [(1, 0)]


def test_a_mixture_is_measured_as_a_whole_run(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(2, 2)

    def seconds() -> list[float]:
        """The second call is slow if the first, whose output it reads, ran on another number of threads."""
        (first, _), (second, _) = made.divisions
        own = [50e-6 / first, 50e-6 if second == 1 else 60e-6]
        return [own[0], own[1] + (40e-6 if first != second else 0)]

    for _ in range(MOST_RUNS):
        made.run(seconds(), made.threads)
    assert made.is_done
    assert made.divisions[0][0] == made.divisions[1][0]


def test_a_slow_run_among_others_changes_nothing(tuner: Callable[[int, int], Tuner]) -> None:
    made, runs = tuner(1, 2), 0
    while not made.is_done:
        runs += 1
        made.run([(40e-6 if runs % 3 == 0 else 0) + scaling(40e-6, 1e-6)(0, made.divisions[0][0])], made.threads)
    assert made.threads == 2


def test_tasks_are_long_compared_with_claiming_them(tuner: Callable[[int, int], Tuner]) -> None:
    short, middle, long = (tuner(1, 2).settle(scaling(work_us * 1e-6, 0))[0] for work_us in (15, 25, 500))
    assert (short, middle, long) == ((2, 15), (2, 25), (2, 32))


def test_runs_with_fewer_cores_are_ignored(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(1, 2)
    for _ in range(MOST_RUNS):
        made.run([1e-3], 1)  # another call uses the second core
    assert not made.is_done
    assert made.settle(scaling(1e-3, 1e-6))[0][0] == 2


def test_long_runs_are_measured_three_times(tuner: Callable[[int, int], Tuner]) -> None:
    made, runs = tuner(1, 2), 0
    while not made.is_done:
        made.run([scaling(0.1, 0)(0, made.divisions[0][0])], made.threads)
        runs += 1
    assert runs == 1 + 3 * 3


def test_one_thread_is_not_measured(tuner: Callable[[int, int], Tuner]) -> None:
    assert tuner(3, 1).is_done
    assert tuner(0, 2).is_done


def test_measurements_under_load_are_repeated(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(1, 2)
    made.settle(scaling(100e-6, 1e-3))  # another process uses the other core
    assert made.threads == 1
    made.pass_runs(16)
    assert made.settle(scaling(100e-6, 1e-6))[0][0] == 2


def test_lasting_load_is_measured_ever_more_rarely(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(1, 2)
    for trust in (16, 32, 64, 128):
        made.settle(scaling(100e-6, 1e-3))
        made.pass_runs(trust - 1)
        assert made.is_done
        made.pass_runs(1)
        assert not made.is_done


def test_later_load_on_the_machine_changes_nothing(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(1, 2)
    made.settle(scaling(1e-3, 1e-6))
    made.pass_runs(256)
    assert made.settle(scaling(1e-3, 1e-2))[0][0] == 2


def test_measurements_become_ever_rarer(tuner: Callable[[int, int], Tuner]) -> None:
    made = tuner(1, 2)
    for trust in (256, 512, 1024):
        made.settle(scaling(1e-3, 1e-6))
        made.pass_runs(trust - 1)
        assert made.is_done
        made.pass_runs(1)
        assert not made.is_done


def test_a_run_that_was_measured_is_measured_by_six_runs_more(tuner: Callable[[int, int], Tuner]) -> None:
    made, runs = tuner(1, 2), 0
    made.settle(scaling(1e-3, 1e-6))
    made.pass_runs(256)
    while not made.is_done:
        made.run([scaling(1e-3, 1e-6)(0, made.divisions[0][0])], made.threads)
        runs += 1
    assert runs == 3 * 2
