"""Requests that are computed together: which, when, and that each gets its own answer."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidTensor
from service.core.signature import ModelSignature
from service.workers.inference import Array, Executor, Scheduling, Stages, Variants
from service.workers.inference.batch_plan import BatchPlan
from tests.support.runners import FunctionRunner, tensor
from tests.support.waiting import GIVE_UP_S, eventually_async

pytestmark = pytest.mark.anyio

SIGNATURE = ModelSignature(
    (tensor("x", "INT32", 1, 5), tensor("tag", "INT64", 1)), (tensor("sum", "INT64", 1), tensor("y", "INT32", 1, 5))
)


class Model:
    """Two inputs, two outputs; every call of any size takes the same time, and may be held up."""

    def __init__(self, *sizes: int) -> None:
        self.calls: list[int] = []
        self.entered, self.opened = threading.Semaphore(0), threading.Event()
        self.opened.set()
        runners = {size: FunctionRunner(SIGNATURE.batched(size), self._run) for size in (1, *sizes)}
        self.variants = Variants(runners.pop(1), runners)
        self.variants.plan = BatchPlan(dict.fromkeys((1, *sizes), 1.0) | {1: 0.9})

    def start(self, **scheduling: Any) -> Executor:
        return Executor(self.variants, scheduling=Scheduling(**scheduling))

    def _run(self, x: Array, tag: Array) -> Sequence[Array]:
        self.calls.append(len(x))
        self.entered.release()
        assert self.opened.wait(GIVE_UP_S)
        return x.sum(axis=1) + tag, x * 2

    async def running(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=GIVE_UP_S)


def request(tag: int, samples: int = 1) -> list[Array]:
    x = np.arange(samples * 5, dtype=np.int32).reshape(samples, 5) + 1000 * tag
    return [x, np.arange(samples) + 7 * tag]


async def check(executor: Executor, tag: int, samples: int = 1) -> Stages:
    """Asks, and looks whether the answer is that of this request."""
    x, tags = request(tag, samples)
    with executor.permit() as permit:
        permit.tag = tag or None
        total, doubled = await permit.run([x, tags])
    np.testing.assert_array_equal(total, x.sum(axis=1) + tags)
    np.testing.assert_array_equal(doubled, x * 2)
    assert permit.stages is not None
    return permit.stages


async def test_requests_that_wait_are_computed_in_one_call() -> None:
    model = Model(4)
    executor = model.start()
    model.opened.clear()
    first = asyncio.create_task(check(executor, 0))
    await model.running()
    others = [asyncio.create_task(check(executor, tag)) for tag in range(1, 6)]
    await eventually_async(lambda: executor.queued == len(others))
    model.opened.set()
    stages = await asyncio.gather(first, *others)
    assert model.calls == [1, 4, 1]
    assert [each.requests for each in stages] == [1, 4, 4, 4, 4, 1]
    assert [each.batch_tags for each in stages] == [(), *[(1, 2, 3, 4)] * 4, (5,)]
    executor.close()


async def test_a_call_is_padded_where_that_is_faster_and_the_padding_is_nobodys() -> None:
    model = Model(4)
    executor = model.start()
    model.opened.clear()
    first = asyncio.create_task(check(executor, 0))
    await model.running()
    others = [asyncio.create_task(check(executor, tag)) for tag in range(1, 4)]
    await eventually_async(lambda: executor.queued == len(others))
    model.opened.set()
    await asyncio.gather(first, *others)
    assert model.calls == [1, 4]
    executor.close()


async def test_requests_that_are_batches_join_too_and_are_not_torn_apart() -> None:
    model = Model(2, 8)
    executor = model.start()
    model.opened.clear()
    first = asyncio.create_task(check(executor, 0))
    await model.running()
    others = [asyncio.create_task(check(executor, tag, samples)) for tag, samples in ((1, 2), (2, 5), (3, 1), (4, 3))]
    await eventually_async(lambda: executor.queued == len(others))
    model.opened.set()
    stages = await asyncio.gather(first, *others)
    assert model.calls == [1, 8, 8]
    assert [each.samples for each in stages] == [1, 8, 8, 8, 3]
    executor.close()


async def test_who_is_alone_goes_straight_through_however_long_others_might_be_waited_for() -> None:
    model = Model(8)
    executor = model.start(max_delay_s=600.0)
    for tag in range(3):
        async with asyncio.timeout(GIVE_UP_S):
            await check(executor, tag)
    assert model.calls == [1, 1, 1]
    executor.close()


async def test_who_had_company_is_joined_by_it_without_the_whole_delay() -> None:
    model = Model(8)
    executor = model.start(max_delay_s=600.0)
    permits = [executor.permit() for _ in range(3)]
    async with asyncio.timeout(GIVE_UP_S):
        runs = [asyncio.create_task(permit.run(request(tag))) for tag, permit in enumerate(permits[:2])]
        await eventually_async(lambda: executor.queued == 2)
        assert not model.calls
        await asyncio.gather(permits[2].run(request(2)), *runs)
    assert model.calls == [8]
    executor.close()


async def test_company_that_does_not_come_is_waited_for_as_long_as_allowed() -> None:
    model = Model(8)
    executor = model.start(max_delay_s=0.02)
    late = executor.permit()
    async with asyncio.timeout(GIVE_UP_S):
        await check(executor, 1)
    with late:
        assert model.calls == [1]
    executor.close()


async def test_requests_that_lie_across_several_calls_are_put_together_again() -> None:
    model = Model(4, 9)
    model.variants.plan = BatchPlan({1: 1.0, 4: 1.1, 9: 9.0})
    assert model.variants.plan.table[7] == (4, 4)
    executor = model.start()
    await check(executor, 7, samples=7)
    assert model.calls == [4, 4]
    executor.close()


async def test_no_call_of_several_requests_exceeds_the_limit() -> None:
    model = Model(2, 8)
    executor = model.start(max_batch=2)
    model.opened.clear()
    first = asyncio.create_task(check(executor, 0))
    await model.running()
    others = [asyncio.create_task(check(executor, tag)) for tag in range(1, 7)]
    await eventually_async(lambda: executor.queued == len(others))
    model.opened.set()
    await asyncio.gather(first, *others)
    assert model.calls == [1, 2, 2, 2]
    executor.close()


async def test_a_request_that_does_not_fit_spoils_no_call_of_others() -> None:
    model = Model(4)
    executor = model.start()
    model.opened.clear()
    first = asyncio.create_task(check(executor, 0))
    await model.running()
    others = [asyncio.create_task(check(executor, tag)) for tag in range(1, 3)]
    x, tags = request(3)
    for misfit in ([x[:, :4], tags], [x.astype(np.int8), tags], [x, np.arange(2)], [x], request(4, 5), request(4, 0)):
        with executor.permit() as permit, pytest.raises(InvalidTensor):
            await permit.run(misfit)
    model.opened.set()
    await asyncio.gather(first, *others)
    executor.close()


async def test_a_timer_that_comes_early_leaves_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of uvloop do, which counts in milliseconds."""
    executor, loop = Model(4).start(max_delay_s=0.02), asyncio.get_running_loop()
    later = loop.call_later
    monkeypatch.setattr(loop, "call_later", lambda delay_s, *errand: later(delay_s / 2, *errand))
    with executor.permit():  # company that never asks
        stages = await asyncio.wait_for(check(executor, 1), GIVE_UP_S)
    assert stages.queued_s >= 0.02


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("max_delay_s", [0.0, 0.002])
async def test_under_load_every_request_gets_its_own_answer(instances: int, max_delay_s: float) -> None:
    model = Model(2, 4, 8)
    executor = model.start(instances=instances, max_delay_s=max_delay_s, queue_size=100)
    await executor.warm()
    model.variants.plan = BatchPlan({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.3})
    chance = random.Random(0)

    async def client(number: int) -> None:
        for turn in range(40):
            await check(executor, 100 * number + turn, chance.choice((1, 1, 1, 2, 3, 8)))
            if chance.random() < 0.2:
                await asyncio.sleep(0.001)

    await asyncio.gather(*(client(number) for number in range(24)))
    assert max(model.calls) == 8
    assert sum(model.calls) >= 24 * 40
    executor.close()
    await executor.closed()
