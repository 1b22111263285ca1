"""What requests that wait are promised: priorities, deadlines, places, and one answer each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.errors import DeadlinePassed, InvalidInput, OctetError, QueueFull
from service.workers.inference import Abandoned, Array, Executor, Scheduling, Terms, Variants
from service.workers.inference.batch_plan import BatchPlan
from tests.support.runners import FunctionRunner, identity
from tests.support.waiting import GIVE_UP_S, eventually_async

pytestmark = pytest.mark.anyio


class Held:
    """A model that stands still in its first call until it is opened."""

    def __init__(self, **scheduling: Any) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.seen: list[int] = []
        runner = FunctionRunner(identity("INT32", 1).signature, self._run)
        self.executor = Executor(Variants(runner), scheduling=Scheduling(**scheduling))

    def _run(self, x: Array) -> Sequence[Array]:
        self.entered.set()
        assert self.opened.wait(GIVE_UP_S)
        self.seen.append(int(x[0]))
        return (x,)

    def ask(self, value: int, **terms: Any) -> asyncio.Task[int]:
        async def ask() -> int:
            with self.executor.permit() as permit:
                return int((await permit.run([np.array([value], np.int32)], Terms(**terms)))[0][0])

        return asyncio.create_task(ask())

    async def begin(self) -> asyncio.Task[int]:
        """From here on a call is under way."""
        first = self.ask(0)
        assert await asyncio.to_thread(self.entered.wait, GIVE_UP_S)
        return first


async def test_higher_priorities_are_served_first_and_none_means_the_middle() -> None:
    held = Held()
    requests = [await held.begin()]
    requests += [held.ask(value, priority=priority) for value, priority in ((1, 3), (2, 0), (3, 1), (4, 2), (5, 1))]
    await asyncio.sleep(0)
    held.opened.set()
    await asyncio.gather(*requests)
    assert held.seen == [0, 3, 5, 2, 4, 1]
    held.executor.close()


async def test_a_priority_that_does_not_exist_is_refused() -> None:
    held = Held(priority_levels=2)
    held.opened.set()
    for priority in (-1, 3):
        with pytest.raises(InvalidInput, match=str(priority)):
            await held.ask(1, priority=priority)
    assert await held.ask(1, priority=2) == 1
    held.executor.close()


async def test_a_deadline_ends_the_waiting_while_the_call_before_goes_on() -> None:
    held = Held(queue_size=1)
    first = await held.begin()
    async with asyncio.timeout(GIVE_UP_S / 2):
        with pytest.raises(DeadlinePassed):
            await held.ask(1, timeout_s=0.02)
    second = held.ask(2)  # it gave its place back
    await asyncio.sleep(0)
    held.opened.set()
    assert list(await asyncio.gather(first, second)) == [0, 2]
    assert held.seen == [0, 2]
    held.executor.close()


async def test_a_deadline_that_passes_during_the_call_changes_nothing() -> None:
    held = Held()
    request = held.ask(1, timeout_s=2.0)
    assert await asyncio.to_thread(held.entered.wait, GIVE_UP_S)
    await asyncio.sleep(2.0)
    held.opened.set()
    assert await request == 1
    held.executor.close()


async def test_the_models_timeout_is_for_those_who_name_none() -> None:
    held = Held(timeout_s=0.02)
    first = await held.begin()
    patient = held.ask(1, timeout_s=60.0)
    with pytest.raises(DeadlinePassed):
        await held.ask(2)
    held.opened.set()
    assert list(await asyncio.gather(first, patient)) == [0, 1]
    held.executor.close()


async def test_the_shorter_of_two_timeouts_counts_from_the_admission() -> None:
    held = Held()
    held.opened.set()
    for of_permit, of_request in ((0.01, 60.0), (60.0, 0.01), (0.01, None)):
        with held.executor.permit(of_permit) as permit:
            await asyncio.sleep(0.02)  # the body arrives slowly
            with pytest.raises(DeadlinePassed):
                await permit.run([np.zeros(1, np.int32)], Terms(timeout_s=of_request))
    assert held.seen == []
    held.executor.close()


async def test_a_lent_place_is_anothers_until_it_is_claimed() -> None:
    held = Held(queue_size=1)
    first = await held.begin()
    with held.executor.permit() as slow:
        slow.lend()
        second = held.ask(2)
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            slow.claim()
        held.opened.set()
        assert list(await asyncio.gather(first, second)) == [0, 2]
        slow.claim()
        assert (await slow.run([np.array([3], np.int32)]))[0][0] == 3
    assert held.executor.queue.waiting() == 0
    held.executor.close()


async def test_a_refusal_says_when_the_queue_will_have_been_served() -> None:
    held = Held(queue_size=2)
    held.opened.set()
    await held.ask(0)
    held.opened.clear()
    held.entered.clear()
    requests = [await held.begin(), held.ask(1)]
    await asyncio.sleep(0)
    one_s = held.executor.queue.retry_after_s()  # what calls took lately
    requests.append(held.ask(2))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull) as refused:
        held.executor.permit()
    assert refused.value.retry_after_s == pytest.approx(2 * one_s)
    assert one_s > 0
    held.opened.set()
    await asyncio.gather(*requests)
    held.executor.close()


async def test_the_stages_of_a_request_are_told() -> None:
    held = Held()
    first = await held.begin()
    with held.executor.permit() as permit:
        answer = asyncio.create_task(permit.run([np.array([1], np.int32)]))
        await eventually_async(lambda: held.executor.queued == 1)
        await asyncio.sleep(0.02)
        held.opened.set()
        await asyncio.gather(first, answer)
        assert permit.stages is not None
        assert permit.stages.queued_s >= 0.02
        assert (permit.stages.requests, permit.stages.samples) == (1, 1)
        assert min(permit.stages.batched_s, permit.stages.run_s, permit.stages.returned_s) >= 0
    held.executor.close()


@dataclass(frozen=True)
class Asked:
    """One request, and what becomes of its sender; times in milliseconds."""

    after_ms: int
    samples: int
    priority: int
    timeout_ms: int | None
    leaves_after_ms: int | None
    politely: bool


ASKED = st.builds(
    Asked,
    after_ms=st.integers(0, 3),
    samples=st.sampled_from((1, 1, 1, 2, 3)),
    priority=st.integers(0, 3),
    timeout_ms=st.none() | st.integers(1, 6),
    leaves_after_ms=st.none() | st.integers(0, 6),
    politely=st.booleans(),
)


@settings(max_examples=25, deadline=None)
@given(
    asked=st.lists(ASKED, min_size=1, max_size=24),
    queue_size=st.integers(1, 6),
    instances=st.integers(1, 3),
    delay_ms=st.integers(0, 2),
)
def test_every_request_ends_once_and_no_limit_is_exceeded(
    asked: list[Asked], queue_size: int, instances: int, delay_ms: int
) -> None:
    asyncio.run(_all_end(asked, Scheduling(queue_size, instances, max_delay_s=delay_ms / 1e3)))


async def _all_end(asked: list[Asked], scheduling: Scheduling) -> None:
    signature = identity("INT32", 1, 2).signature
    computed: list[int] = []
    running = most = 0
    lock = threading.Lock()

    def run(x: Array) -> Sequence[Array]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            computed.extend(int(tag) for tag in x[:, 0])
        threading.Event().wait(0.001)
        with lock:
            running -= 1
        return (x + 1,)

    variants = Variants(
        FunctionRunner(signature, run), {size: FunctionRunner(signature.batched(size), run) for size in (2, 4)}
    )
    variants.plan = BatchPlan({1: 1.0, 2: 1.1, 4: 1.2})
    executor = Executor(variants, scheduling=scheduling)

    async def ask(tag: int, one: Asked) -> str:
        await asyncio.sleep(one.after_ms / 1e3)
        x = np.full((one.samples, 2), tag, np.int32)
        try:
            with executor.permit() as permit:
                assert executor.queue.waiting() <= scheduling.queue_size + scheduling.instances
                loop, this = asyncio.get_running_loop(), asyncio.current_task()
                assert this is not None
                if one.leaves_after_ms is not None:
                    leave = permit.abandon if one.politely else this.cancel
                    leaving = loop.call_later(one.leaves_after_ms / 1e3, leave)
                timeout_s = None if one.timeout_ms is None else one.timeout_ms / 1e3
                try:
                    (answer,) = await permit.run([x], Terms(one.priority, timeout_s))
                finally:
                    if one.leaves_after_ms is not None:
                        leaving.cancel()
                np.testing.assert_array_equal(answer, x + 1)
                return "answered"
        except (OctetError, Abandoned) as error:
            return type(error).__name__

    tasks = [asyncio.create_task(ask(tag, one)) for tag, one in enumerate(asked, 1)]
    async with asyncio.timeout(GIVE_UP_S):
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    executor.close()
    await executor.closed()
    for tag, (one, end) in enumerate(zip(asked, ends, strict=True), 1):
        if end == "answered":
            assert computed.count(tag) >= one.samples
        elif isinstance(end, asyncio.CancelledError) or end == "Abandoned":
            assert one.leaves_after_ms is not None
        else:
            assert end in ("QueueFull", "DeadlinePassed"), end
            assert tag not in computed
    assert most <= scheduling.instances
    assert (executor.queue.waiting(), executor.admitted, executor.queued) == (0, 0, 0)
