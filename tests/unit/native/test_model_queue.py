"""Who cannot be in time leaves the queue at once, though the instance is busy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from service.native import Job, Mailbox, ModelQueue, Outcome, as_runner
from tests.support.waiting import GIVE_UP_S, eventually

_CALL_S = 0.02  # of the first call, from which the queue knows what calls take


class Held:
    """A queue whose only instance is in a call until it is told to end it."""

    def __init__(self, queue_size: int = 2, max_wait_s: float | None = None) -> None:
        self.mailbox, self._entered, self._gate = Mailbox.empty(), threading.Semaphore(0), threading.Semaphore(0)
        self.queue = ModelQueue.start(
            "m",
            [{1: as_runner(self._run)}],
            queue_size=queue_size,
            levels=3,
            max_batch=0,
            max_delay_s=0.0,
            max_wait_s=max_wait_s,
        )
        self.submit(0)
        assert self._entered.acquire(timeout=GIVE_UP_S)
        time.sleep(_CALL_S)
        self._gate.release()
        eventually(lambda: [job.key for job in self.mailbox.take()] == [0])
        self.submit(1)
        assert self._entered.acquire(timeout=GIVE_UP_S)

    def _run(self, arrays: Any) -> Any:
        self._entered.release()
        assert self._gate.acquire(timeout=GIVE_UP_S)
        return arrays

    def submit(self, key: int, deadline_s: float | None = None) -> None:
        assert self.queue.admit()
        self.queue.submit(Job.of(key, [np.zeros((1, 1))], self.mailbox, level=1, samples=1, deadline_s=deadline_s))

    def taken(self) -> dict[int, int]:
        """The outcomes of those that are over, by key."""
        return {job.key: job.outcome() for job in self.mailbox.take()}

    def close(self) -> None:
        for _ in range(99):
            self._gate.release()
        self.queue.close()


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held()
    yield found
    found.close()


def test_the_oldest_is_refused_when_another_comes_that_is_served_before_it(held: Held) -> None:
    soon_s = time.monotonic() + _CALL_S / 2  # or it has passed by then, which is the same
    held.submit(2, soon_s)
    assert held.taken() == {}
    held.submit(3, soon_s)
    assert held.taken() == {2: Outcome.LATE}
    assert held.queue.queued() == 1


def test_requests_that_can_wait_are_not_refused_for_others(held: Held) -> None:
    for key in (2, 3):
        held.submit(key)
    assert not held.queue.admit()
    assert (held.taken(), held.queue.queued()) == ({}, 2)


def test_a_request_that_is_hopeless_by_now_keeps_no_place_from_another(held: Held) -> None:
    distant_s = time.monotonic() + 1.25 * _CALL_S
    for key in (2, 3):  # one after the other they are in time, if this takes no longer than it should
        held.submit(key, distant_s)
    eventually(lambda: time.monotonic() > distant_s)
    held.submit(4)
    assert held.taken().items() >= {(2, Outcome.LATE)}


def test_of_a_slow_model_fewer_may_wait() -> None:
    held = Held(queue_size=64, max_wait_s=_CALL_S / 100)
    for key in range(8):
        held.submit(2 + key)
    assert not held.queue.admit()
    held.close()


def test_of_a_fast_model_as_many_may_wait_as_there_are_places() -> None:
    held = Held(queue_size=20, max_wait_s=1e6)
    for key in range(20):
        held.submit(2 + key)
    assert not held.queue.admit()
    held.close()
