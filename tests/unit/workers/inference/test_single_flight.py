"""Tests that one computation serves all callers that request the same key at the same time."""

from __future__ import annotations

import asyncio

import pytest

from service.workers.inference.single_flight import SingleFlight

pytestmark = pytest.mark.anyio


async def test_concurrent_callers_share_the_result() -> None:
    single_flight: SingleFlight[str, int] = SingleFlight()
    started = 0

    async def compute() -> int:
        nonlocal started
        started += 1
        await asyncio.sleep(0)
        return started

    assert await asyncio.gather(*(single_flight.join("a", compute) for _ in range(3))) == [1, 1, 1]
    assert await single_flight.join("a", compute) == 2


async def test_a_caller_after_the_end_starts_a_new_computation() -> None:
    """If later callers got the finished result, a caller that repeats its request until the result changes would loop
    for ever, and no other task would run.
    """
    single_flight: SingleFlight[str, int] = SingleFlight()
    over, started = asyncio.Event(), 0

    async def compute() -> int:
        nonlocal started
        started += 1
        over.set()
        return started

    async def ask_at_its_end() -> int:
        await over.wait()
        return await single_flight.join("a", compute)

    late = asyncio.create_task(ask_at_its_end())
    await asyncio.sleep(0)
    assert await single_flight.join("a", compute) == 1
    assert await late == 2


async def test_an_error_reaches_all_callers_and_is_forgotten() -> None:
    single_flight: SingleFlight[str, int] = SingleFlight()

    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def succeed() -> int:
        return 1

    answers = await asyncio.gather(single_flight.join("a", fail), single_flight.join("a", fail), return_exceptions=True)
    assert [type(answer) for answer in answers] == [ValueError, ValueError]
    assert await single_flight.join("a", succeed) == 1


async def test_a_canceled_caller_does_not_end_the_computation_for_the_others() -> None:
    single_flight: SingleFlight[str, int] = SingleFlight()
    go = asyncio.Event()

    async def compute() -> int:
        await go.wait()
        return 1

    leaver = asyncio.create_task(single_flight.join("a", compute))
    stayer = asyncio.create_task(single_flight.join("a", compute))
    await asyncio.sleep(0)
    leaver.cancel()
    go.set()
    assert await stayer == 1


async def test_end_cancels_the_computations_in_progress() -> None:
    single_flight: SingleFlight[str, None] = SingleFlight()
    waiter = asyncio.create_task(single_flight.join("a", asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    await single_flight.end()
    with pytest.raises(asyncio.CancelledError):
        await waiter
