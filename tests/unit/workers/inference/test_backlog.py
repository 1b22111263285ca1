"""Who is served next: by priority, by arrival, and nobody never."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.workers.inference.backlog import OLDEST_EVERY, Backlog

LEVELS, MOST, SIZES = 3, 8, (1, 2, 4, 8)


@dataclass(eq=False)
class Request:
    level: int
    samples: int = 1
    deadline_s: float | None = None
    ticket: int = -1
    calls_before: int = 0


def filled(*requests: Request) -> Backlog[Request]:
    backlog: Backlog[Request] = Backlog(LEVELS)
    for request in requests:
        backlog.add(request)
    return backlog


def one_each(samples: int) -> bool:
    return False


def test_the_first_level_is_served_first_and_within_a_level_who_came_first() -> None:
    requests = [Request(level) for level in (3, 1, 2, 1)]
    backlog = filled(*requests)
    served = [backlog.take(0, MOST, one_each)[0][0] for _ in requests]
    assert served == [requests[1], requests[3], requests[2], requests[0]]


def test_the_oldest_is_served_though_others_of_a_higher_level_never_cease_to_come() -> None:
    patient = Request(3)
    backlog = filled(patient)
    served = []
    for _ in range(OLDEST_EVERY):
        backlog.add(Request(1))
        served += backlog.take(0, MOST, one_each)[0]
    assert served.index(patient) == OLDEST_EVERY - 1


def test_as_many_are_taken_as_make_one_call() -> None:
    requests = [Request(1) for _ in range(7)]
    backlog = filled(*requests)
    assert backlog.take(0, MOST, lambda samples: samples in SIZES)[0] == requests[:4]
    assert backlog.take(0, 2, lambda samples: samples in SIZES)[0] == requests[4:6]
    assert len(backlog) == 1


def test_a_request_that_is_itself_more_than_a_call_of_several_may_have_is_taken_alone() -> None:
    large = Request(1, samples=8)
    backlog = filled(large, Request(1))
    assert backlog.take(0, 4, lambda samples: True)[0] == [large]


def test_who_is_too_late_is_told_apart_and_does_not_take_part() -> None:
    late, early, other = Request(1, deadline_s=1.0), Request(1, deadline_s=9.0), Request(1)
    backlog = filled(late, early, other)
    assert backlog.take(5.0, MOST, lambda samples: True) == ([early, other], [late])
    assert len(backlog) == backlog.samples == 0


class States(RuleBasedStateMachine):
    """Any order of arrivals, calls and leavings."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog: Backlog[Request] = Backlog(LEVELS)
        self.waiting: list[Request] = []  # in the order of arrival
        self.now_s = 0.0

    @rule(level=st.integers(1, LEVELS), samples=st.sampled_from(SIZES), timeout_s=st.none() | st.integers(1, 4))
    def arrives(self, level: int, samples: int, timeout_s: int | None) -> None:
        deadline_s = None if timeout_s is None else self.now_s + timeout_s
        request = Request(level, samples, deadline_s, calls_before=OLDEST_EVERY * (len(self.waiting) + 1))
        self.backlog.add(request)
        self.waiting.append(request)

    @rule(seconds=st.integers(0, 2), most=st.sampled_from(SIZES), fits=st.frozensets(st.sampled_from(range(1, 9))))
    def is_called(self, seconds: int, most: int, fits: frozenset[int]) -> None:
        self.now_s += seconds
        taken, late = self.backlog.take(self.now_s, most, fits.__contains__)
        samples = sum(request.samples for request in taken)
        assert len(taken) <= 1 or (samples <= most and samples in fits)
        assert all(request.deadline_s is not None and request.deadline_s <= self.now_s for request in late)
        assert all(request.deadline_s is None or request.deadline_s > self.now_s for request in taken)
        assert taken or len(late) == len(self.waiting)
        for level in range(1, LEVELS + 1):
            alive = [each for each in self.waiting if each.level == level and each not in late]
            of_level = [each for each in taken if each.level == level]
            assert of_level == alive[: len(of_level)]  # nobody overtakes on a level
        self.waiting = [each for each in self.waiting if each not in taken and each not in late]
        for request in self.waiting:
            request.calls_before -= 1
            assert request.calls_before > 0  # nobody waits longer than was promised

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting))
        self.backlog.remove(request)
        self.waiting.remove(request)

    @invariant()
    def counts_are_right(self) -> None:
        assert len(self.backlog) == len(self.waiting)
        assert self.backlog.samples == sum(request.samples for request in self.waiting)
        assert self.backlog.oldest is (self.waiting[0] if self.waiting else None)


TestStates = States.TestCase
