"""The queue of a loaded model: its bound, its order, and what it does for those who left."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from service.core.errors import DeadlinePassed, InvalidTensor, QueueFull
from service.workers.inference import Abandoned, Array, Executor, ModelObserver, Scheduling, Variants
from tests.support.runners import FunctionRunner, identity
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio


class Gate:
    """A model that stands still inside `run` until it is opened, and remembers what it ran."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()
        self.seen: list[int] = []
        self.held = False

    def runner(self) -> FunctionRunner:
        return FunctionRunner(identity("INT32", 1).signature, self._run)

    def _run(self, x: Array) -> Sequence[Array]:
        if self.held:
            self.entered.release()
            assert self.opened.wait(GIVE_UP_S)
        self.seen.append(int(x[0]))
        return (x,)

    async def hold(self, executor: Executor) -> None:
        """From here on the model stands still."""
        await executor.warm()
        self.seen.clear()
        self.held = True


def start(runner: FunctionRunner, observer: ModelObserver | None = None, **scheduling: Any) -> Executor:
    return Executor(Variants(runner), scheduling=Scheduling(**scheduling), observer=observer)


def number(value: int) -> list[Array]:
    return [np.array([value], np.int32)]


async def infer(executor: Executor, value: int) -> int:
    with executor.permit() as permit:
        return int((await permit.run(number(value)))[0][0])


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.acquire, timeout=GIVE_UP_S)


async def test_answers_come_back_in_order() -> None:
    executor = start(identity("INT32", 1), queue_size=100)
    assert await asyncio.gather(*(infer(executor, value) for value in range(50))) == list(range(50))
    executor.close()


async def test_the_event_loop_turns_while_the_model_runs() -> None:
    gate = Gate()
    executor = start(gate.runner(), queue_size=1)
    await gate.hold(executor)
    request = asyncio.create_task(infer(executor, 1))
    await entered(gate)  # needs the loop, while `run` blocks its thread
    gate.opened.set()
    assert await request == 1
    executor.close()


async def test_the_request_after_the_last_place_is_refused() -> None:
    gate = Gate()
    executor = start(gate.runner(), queue_size=2)
    await gate.hold(executor)
    requests = [asyncio.create_task(infer(executor, value)) for value in range(3)]  # one runs, two wait
    await entered(gate)
    with pytest.raises(QueueFull):
        executor.permit()
    with pytest.raises(QueueFull):
        await infer(executor, 3)
    gate.opened.set()
    assert await asyncio.gather(*requests) == [0, 1, 2]
    assert await infer(executor, 4) == 4
    executor.close()


async def test_a_canceled_request_gives_its_place_back_and_is_never_executed() -> None:
    gate = Gate()
    executor = start(gate.runner(), queue_size=1)
    await gate.hold(executor)
    first = asyncio.create_task(infer(executor, 1))
    await entered(gate)
    second = asyncio.create_task(infer(executor, 2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    third = asyncio.create_task(infer(executor, 3))
    gate.opened.set()
    assert (await first, await third) == (1, 3)
    assert gate.seen == [1, 3]
    executor.close()


async def test_an_abandoned_request_ends_at_once_and_is_never_executed() -> None:
    gate = Gate()
    executor = start(gate.runner(), queue_size=2)
    await gate.hold(executor)
    first = asyncio.create_task(infer(executor, 1))
    await entered(gate)
    with executor.permit() as permit:
        asyncio.get_running_loop().call_soon(permit.abandon)
        with pytest.raises(Abandoned):
            await permit.run(number(2))
    gate.opened.set()
    await first
    assert await infer(executor, 3) == 3
    assert gate.seen == [1, 3]
    executor.close()


async def test_abandoning_an_answered_request_changes_nothing() -> None:
    executor = start(identity("INT32", 1), queue_size=2)
    with executor.permit() as permit:
        permit.abandon()
        assert (await permit.run(number(1)))[0][0] == 1
        permit.abandon()
    executor.close()


async def test_a_canceled_request_frees_its_tensors_before_its_turn() -> None:
    gate = Gate()
    executor = start(gate.runner(), queue_size=1)
    await gate.hold(executor)
    first = asyncio.create_task(infer(executor, 1))
    await entered(gate)
    tensors = number(2)
    watched = weakref.ref(tensors[0])

    async def request() -> None:
        with executor.permit() as permit:
            await permit.run(tensors)

    second = asyncio.create_task(request())
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    tensors.clear()
    gc.collect()
    assert watched() is None
    gate.opened.set()
    await first
    executor.close()


async def test_an_error_of_the_model_is_its_callers_alone() -> None:
    executor = start(identity("INT32", 1), queue_size=4)
    with executor.permit() as permit, pytest.raises(InvalidTensor):
        await permit.run([np.zeros(2, np.int32)])
    assert await infer(executor, 7) == 7
    executor.close()


async def test_a_failed_warm_up_is_raised() -> None:
    def fail(x: Array) -> Sequence[Array]:
        raise RuntimeError("no such instruction")

    executor = start(FunctionRunner(identity("INT32", 1).signature, fail), queue_size=1)
    with pytest.raises(RuntimeError, match="no such instruction"):
        await executor.warm()
    executor.close()


async def test_instances_run_at_the_same_time() -> None:
    gate = Gate()
    executor = start(gate.runner(), queue_size=0, instances=2)
    await gate.hold(executor)
    requests = [asyncio.create_task(infer(executor, value)) for value in range(2)]
    await entered(gate)
    await entered(gate)
    gate.opened.set()
    assert await asyncio.gather(*requests) == [0, 1]
    executor.close()


async def test_a_request_has_to_wait_when_every_instance_has_one() -> None:
    executor = start(identity("INT32", 1), queue_size=2)
    with executor.permit() as first:
        assert not first.has_to_wait
        with executor.permit() as second:
            assert second.has_to_wait
    executor.close()


async def test_closing_runs_what_is_queued_and_ends_the_threads() -> None:
    executor = start(identity("INT32", 1), queue_size=10)
    requests = [asyncio.create_task(infer(executor, value)) for value in range(5)]
    await asyncio.sleep(0)
    executor.close()
    await executor.closed()
    assert await asyncio.gather(*requests) == list(range(5))


async def test_the_observer_hears_of_every_step() -> None:
    class Log:
        def __init__(self) -> None:
            self.steps: list[str] = []

        def waited(self, waits_s: Array) -> None:
            assert all(0 <= each < 10 for each in waits_s)
            self.steps += ["waited"] * len(waits_s)

        def computed(self, requests: Array, samples: Array, run_s: Array) -> None:
            assert requests.tolist() == samples.tolist() == [1] * len(run_s)
            assert all(0 <= each < 10 for each in run_s)
            self.steps += ["computed"] * len(run_s)

        def unloaded(self) -> None:
            self.steps.append("unloaded")

    log, gate = Log(), Gate()
    executor = start(gate.runner(), queue_size=1, observer=log)
    await gate.hold(executor)
    assert log.steps == []  # nobody asked for the warm-up
    first = asyncio.create_task(infer(executor, 1))
    await asyncio.to_thread(gate.entered.acquire)
    with executor.permit(timeout_s=0.01) as permit:
        second = asyncio.create_task(permit.run(number(2)))
        await asyncio.sleep(0)
        assert (executor.admitted, executor.queued) == (2, 1)
        with pytest.raises(DeadlinePassed):
            await second
    gate.opened.set()
    await first
    assert (executor.admitted, executor.queued) == (0, 0)
    executor.close()
    await executor.closed()
    assert log.steps == ["waited", "waited", "computed"]
