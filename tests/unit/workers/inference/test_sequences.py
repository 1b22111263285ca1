"""Requests to a model that keeps state: each goes on from what the last of its sequence left, and from nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidInput, InvalidTensor, QueueFull, UnknownSequence
from service.workers.inference import Executor, Scheduling, Step, Terms, Variants
from tests.support.runners import identity, tally

pytestmark = pytest.mark.anyio

BEGINNING = 100  # of a tally


def start(**scheduling: Any) -> Executor:
    return Executor(Variants(tally()), scheduling=Scheduling(**scheduling))


async def add(executor: Executor, value: int, step: Step | None, dtype: type = np.int32) -> int:
    with executor.permit() as permit:
        return int((await permit.run([np.array([value], dtype)], Terms(step=step)))[0][0])


async def test_sequences_that_take_turns_keep_apart() -> None:
    executor = start(instances=2)
    answers = []
    for starts in (True, False, False):
        answers += [await add(executor, 1, Step("one", starts)), await add(executor, 20, Step(2, starts))]
    assert answers == [101, 120, 102, 140, 103, 160]


async def test_requests_of_one_sequence_are_run_in_the_order_in_which_they_came() -> None:
    executor = start(instances=4)
    await add(executor, 0, Step(1, starts=True))
    answers = await asyncio.gather(*(add(executor, 1, Step(1)) for _ in range(50)))
    assert answers == list(range(101, 151))


async def test_an_end_ends_it_and_a_start_begins_anew() -> None:
    executor = start()
    assert await add(executor, 5, Step(1, starts=True)) == 105
    assert await add(executor, 5, Step(1, starts=True)) == 105
    assert await add(executor, 1, Step(1, ends=True)) == 106
    with pytest.raises(UnknownSequence, match="the sequence 1 is not under way"):
        await add(executor, 1, Step(1))


async def test_a_request_of_no_sequence_is_refused() -> None:
    with pytest.raises(InvalidInput, match="keeps state") as refused:
        await add(start(), 1, None)
    assert refused.value.hint is not None
    assert "sequence_id" in refused.value.hint


async def test_a_request_that_fails_leaves_the_sequence_as_it_was() -> None:
    executor = start()
    await add(executor, 5, Step(1, starts=True))
    with pytest.raises(InvalidTensor):
        await add(executor, 1, Step(1, ends=True), np.int64)
    assert await add(executor, 1, Step(1)) == 106


async def test_a_sequence_whose_first_request_fails_has_not_begun() -> None:
    executor = start(max_sequences=1)
    with pytest.raises(InvalidTensor):
        await add(executor, 1, Step(1, starts=True), np.int64)
    assert await add(executor, 1, Step(2, starts=True)) == 101


async def test_only_so_many_are_under_way() -> None:
    executor = start(max_sequences=2)
    for id_ in (1, 2):
        await add(executor, 1, Step(id_, starts=True))
    with pytest.raises(QueueFull, match="2 sequences"):
        await add(executor, 1, Step(3, starts=True))
    await add(executor, 1, Step(1, ends=True))
    assert await add(executor, 1, Step(3, starts=True)) == 101


async def test_one_that_nobody_asks_for_makes_room() -> None:
    executor = start(max_sequences=1, sequence_idle_s=0.05)
    await add(executor, 1, Step(1, starts=True))
    await asyncio.sleep(0.1)
    assert await add(executor, 1, Step(2, starts=True)) == 101
    with pytest.raises(UnknownSequence):
        await add(executor, 1, Step(1))


async def test_who_leaves_before_the_answer_ends_the_sequence() -> None:
    """Its call may still be running."""
    executor = start()
    await add(executor, 1, Step(1, starts=True))
    asking = asyncio.create_task(add(executor, 1, Step(1)))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(UnknownSequence):
        await add(executor, 1, Step(1))


async def test_a_model_without_state_does_not_look_at_sequences() -> None:
    executor = Executor(Variants(identity("INT32", 1)), scheduling=Scheduling())
    assert executor.sequences is None
    assert await add(executor, 7, Step(1)) == 7
