"""Tests scheduling by cost with a clock that the tests control. Every call runs until the test releases it."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from tests.support.runtime_threads import RuntimeThreads, Turn
from tests.support.waiting import GIVE_UP_S, eventually


class Call:
    """A call on its own thread, which may be waiting."""

    def __init__(self, budget: Budget, flow: str, cores: int) -> None:
        self.turn, self._granted = Turn(), threading.Event()
        self._budget, arguments = budget, (budget.handle, cores, budget.flows[flow], ctypes.byref(self.turn))

        def acquire() -> None:
            budget.threads["budget_acquire"](*arguments)
            self._granted.set()

        threading.Thread(target=acquire, daemon=True).start()
        eventually(lambda: self.is_granted or budget.waits_for(self))

    @property
    def is_granted(self) -> bool:
        return self._granted.is_set()

    def granted(self) -> Call:
        assert self._granted.wait(GIVE_UP_S)
        return self

    def release(self) -> None:
        self._budget.threads["budget_release"](self._budget.handle, ctypes.byref(self.turn))
        self._budget.calls.remove(self)


class Budget:
    """A core budget of `cores` cores, with flows by name."""

    def __init__(self, threads: RuntimeThreads, cores: int) -> None:
        self.threads, self.now_s = threads, 0.0
        self.pass_time(0)
        self.handle = ctypes.c_void_p(threads["budget_new"](cores))
        self.flows = defaultdict[str, ctypes.c_void_p](lambda: ctypes.c_void_p(threads["flow_new"]()))
        self.calls = list[Call]()

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.threads["budget_set_clock"](ctypes.c_double(self.now_s))

    def waits_for(self, call: Call) -> bool:
        """Returns whether `call`, which began last, waits together with the earlier calls that were not granted."""
        waiting = sum(not each.is_granted for each in self.calls) + (call not in self.calls)
        return int(self.threads["budget_waiting"](self.handle)) == waiting

    def call(self, flow: str, cores: int = 1) -> Call:
        call = Call(self, flow, cores)
        self.calls.append(call)
        return call

    def costs(self, flow: str, seconds: float) -> None:
        """Runs a call of `flow` alone, which costs `seconds`."""
        call = self.call(flow).granted()
        self.pass_time(seconds)
        call.release()

    def close(self) -> None:
        assert not self.calls
        self.threads["budget_free"](self.handle)
        for flow in self.flows.values():
            self.threads["flow_free"](flow)


Make = Callable[[int], Budget]


@pytest.fixture
def budget(threads: RuntimeThreads) -> Iterator[Make]:
    made = list[Budget]()

    def make(cores: int) -> Budget:
        made.append(Budget(threads, cores))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_small_call_runs_beside_large_ones(budget: Make) -> None:
    cores = budget(2)
    cores.costs("light", 0.00002)
    cores.costs("heavy", 0.025)
    cores.pass_time(1)
    heavy = [cores.call("heavy").granted() for _ in range(2)]
    waiting = cores.call("heavy")
    for _ in range(100):
        light = cores.call("light", 2).granted()
        assert (light.turn.is_overdrawn, light.turn.cores) == (True, 1)
        light.release()
    assert not waiting.is_granted
    for each in heavy:
        each.release()
    waiting.granted().release()


def test_only_one_small_call_at_a_time_runs_beside(budget: Make) -> None:
    cores = budget(1)
    cores.costs("light", 0.00002)
    cores.costs("heavy", 0.025)
    heavy = cores.call("heavy").granted()
    first, second = (cores.call("light") for _ in range(2))
    first.granted()
    assert not second.is_granted
    first.release()
    second.granted().release()
    heavy.release()


def test_small_calls_that_add_up_to_more_than_their_share_wait(budget: Make) -> None:
    cores = budget(1)
    cores.costs("light", 0.01)
    cores.costs("heavy", 0.1)
    heavy = cores.call("heavy").granted()
    beside = 0
    while (light := cores.call("light")).is_granted:
        beside += 1
        cores.pass_time(0.01)
        light.release()
    assert beside == 10  # the light calls together took as much time as the heavy call that ran at the same time
    heavy.release()
    light.granted().release()


def test_calls_of_similar_cost_do_not_run_beside_each_other(budget: Make) -> None:
    cores = budget(1)
    for flow in ("a", "b"):
        cores.costs(flow, 0.01)
    first, second = cores.call("a"), cores.call("b")
    assert not second.is_granted
    first.release()
    second.granted().release()


def test_the_first_call_of_a_flow_does_not_count_as_small(budget: Make) -> None:
    cores = budget(1)
    cores.costs("heavy", 0.1)
    heavy, new = cores.call("heavy").granted(), cores.call("new")
    assert not new.is_granted
    heavy.release()
    new.granted().release()


def served(cores: Budget, calls: list[tuple[str, float]], running: Call) -> list[str]:
    """Returns the flows of `calls` in the order in which they are served. The calls run one after the other, each for
    its duration.
    """
    waiting = [(flow, seconds, cores.call(flow)) for flow, seconds in calls]
    running.release()
    order = []
    while waiting:
        eventually(lambda: any(call.is_granted for _, _, call in waiting))
        ((flow, seconds, call),) = [each for each in waiting if each[2].is_granted]
        waiting.remove((flow, seconds, call))
        order.append(flow)
        cores.pass_time(seconds)
        call.release()
    return order


def test_flows_with_less_usage_are_served_first(budget: Make) -> None:
    cores = budget(1)
    cores.costs("middle", 0.05)
    cores.costs("heavy", 0.1)
    calls = [("heavy", 0.1)] * 3 + [("middle", 0.05)] * 4
    order = served(cores, calls, cores.call("heavy").granted())
    # The flows get equal times, not equal numbers of calls.
    assert order == ["middle", "middle", "heavy", "middle", "middle", "heavy", "heavy"]


def test_equal_flows_alternate(budget: Make) -> None:
    cores = budget(1)
    for flow in ("a", "b"):
        cores.costs(flow, 0.01)
    calls = [("a", 0.01)] * 3 + [("b", 0.01)] * 3
    assert served(cores, calls, cores.call("a").granted()) == ["b", "a", "b", "a", "b", "a"]


def test_an_idle_flow_accumulates_no_credit(budget: Make) -> None:
    cores = budget(1)
    cores.costs("b", 0.01)
    for _ in range(50):
        cores.costs("a", 0.01)
    calls = [("a", 0.01)] * 3 + [("b", 0.01)] * 3
    order = served(cores, calls, cores.call("a").granted())
    assert order[0] == "b"
    assert "a" in order[:3]  # calls that begin at the same virtual time may come in any order


def test_a_small_call_beside_does_not_halve_the_next_large_one(budget: Make) -> None:
    cores = budget(2)
    cores.costs("light", 0.00002)
    cores.costs("heavy", 0.025)
    cores.pass_time(1)
    for _ in range(3):
        heavy = cores.call("heavy", 2).granted()
        assert heavy.turn.cores == 2
        cores.call("light").granted().release()
        cores.pass_time(0.0125)
        heavy.release()
