"""Tests of the orders that the control plane sends to data planes that start and end, and of how it handles their
messages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.core.errors import NotReady, NotStarted, Restarting
from service.workers.data_plane import plane as data_plane
from service.workers.data_plane.frames import PROTOCOL
from service.workers.data_plane.messages import Question, Report, Trace
from service.workers.data_plane.orders import Named
from service.workers.data_plane.plane import Answer, DataPlane, Found, PlaneListener
from tests.support.plane_end import PlaneEnd
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio
ORDER = {"type": "load", "model": "m", "version": "1", "queue_size": 8}
OTHER = {**ORDER, "version": "2"}
CONFIGURE, KEYS = {"type": "configure", "not_ready": ""}, {"type": "keys", "keys": []}
ROUTES = {"type": "routes", "routes": []}

Members = dict[str, Any]


class Listener(PlaneListener):
    def __init__(self) -> None:
        self.finds: list[Found] = []
        self.reports: list[Report] = []
        self.traces: list[Trace] = []
        self.descriptors: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def found(self, found: Found) -> None:
        self.finds.append(found)

    def reported(self, report: Report) -> None:
        self.reports.append(report)

    def traced(self, trace: Trace) -> None:
        self.traces.append(trace)

    def connected(self, descriptor: int) -> None:
        self.descriptors.append(descriptor)

    async def answer(self, question: Question, data: bytes) -> Answer:
        await self.may_answer.wait()
        if question["kind"] == "broken":
            raise RuntimeError("not foreseen")
        return Answer({"echo": question["kind"]}, data)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def end() -> Any:
    end = PlaneEnd()
    yield end
    end.close()


@pytest.fixture
async def plane(end: PlaneEnd) -> AsyncIterator[DataPlane]:
    plane = DataPlane(end.address)
    plane.listener = Listener()
    running = asyncio.create_task(plane.run())
    yield plane
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def listener(plane: DataPlane) -> Listener:
    assert isinstance(plane.listener, Listener)
    return plane.listener


async def loaded(plane: DataPlane, end: PlaneEnd, order: Members = ORDER) -> int:
    """Loads a model, and returns its key."""
    loading = asyncio.create_task(plane.load(order))
    members = await end.expect("load")
    assert {**members, "key": 0} == {**order, "key": 0}
    end.send({"type": "loaded", "key": members["key"]})
    assert await loading == members["key"]
    return int(members["key"])


async def test_each_data_plane_gets_the_latest_standing_orders(plane: DataPlane, end: PlaneEnd) -> None:
    for order in (CONFIGURE, KEYS, {**CONFIGURE, "not_ready": "soon"}):
        plane.order(order)
    for _ in range(2):
        await end.accept()
        assert [await end.expect("configure"), await end.expect("keys")] == [{**CONFIGURE, "not_ready": "soon"}, KEYS]
        end.leave()


async def test_an_unchanged_order_is_not_sent_again(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    await plane.reached()
    for order in (KEYS, KEYS, CONFIGURE):
        plane.order(order)
    assert [await end.expect("keys"), await end.expect("configure")] == [KEYS, CONFIGURE]


async def test_routes_are_not_sent_to_another_data_plane_which_has_no_models(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    await plane.reached()
    plane.order(ROUTES)
    plane.order(KEYS)
    await end.expect("routes")
    end.leave()
    await end.accept()
    await end.expect("keys")
    plane.order(ROUTES)
    await end.expect("routes")


async def test_the_loaded_models_are_reported(plane: DataPlane, end: PlaneEnd) -> None:
    route = {"model": "m", "version": "", "main": 7, "canary": 0, "percent": 0, "versions": ["1"]}
    await end.accept([7, 9], [route])
    await eventually_async(lambda: bool(listener(plane).finds))
    assert listener(plane).finds == [Found(frozenset({7, 9}), [Named("m", "", 7, ["1"])])]
    assert plane.leftovers() == {7, 9}


async def test_the_same_order_has_the_same_key_in_each_control_plane(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    key = await loaded(plane, end)
    end.leave()
    next_end = PlaneEnd()
    other = DataPlane(next_end.address)
    running = asyncio.create_task(other.run())
    try:
        await next_end.accept([key, 5])
        assert await loaded(other, next_end) == key
        assert other.leftovers() == {5}
        assert await loaded(other, next_end, OTHER) not in (key, 5)
    finally:
        running.cancel()
        next_end.close()


async def test_the_key_of_a_model_that_is_being_unloaded_is_not_reused(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    first = await loaded(plane, end)
    second = await loaded(plane, end)
    leaving = asyncio.create_task(plane.unload(first))
    assert (await end.expect("unload"))["key"] == first
    third = await loaded(plane, end)
    assert len({first, second, third}) == 3
    assert not leaving.done()
    end.send({"type": "unloaded", "key": first})
    await leaving


async def test_concurrent_callers_share_a_load(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    loads = [asyncio.create_task(plane.load(ORDER)) for _ in range(2)]
    key = (await end.expect("load"))["key"]
    end.send({"type": "loaded", "key": key})
    assert await asyncio.gather(*loads) == [key, key]


async def test_a_failed_load_has_a_reason(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    for code, kind in (("not_ready", NotReady), ("memory_full", NotReady), ("unheard_of", NotReady)):
        loading = asyncio.create_task(plane.load(ORDER))
        key = (await end.expect("load"))["key"]
        end.send({"type": "failed", "key": key, "code": code, "detail": "no room", "hint": "buy some"})
        with pytest.raises(kind, match="no room") as caught:
            await loading
        assert caught.value.hint == "buy some"
    assert plane.leftovers() == set()


async def test_a_lost_data_plane_ends_all_waits(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    key = await loaded(plane, end)
    waiting = [
        asyncio.create_task(plane.load(OTHER)),
        asyncio.create_task(plane.unload(key)),
        asyncio.create_task(plane.gather()),
    ]
    for kind in ("load", "unload", "gather"):
        await end.expect(kind)
    end.leave()
    with pytest.raises(Restarting, match="ended before it answered"):
        await waiting[0]
    await asyncio.gather(*waiting[1:])
    assert plane.leftovers() == set()
    await plane.gather()  # No data plane is connected.
    await plane.unload(key)  # The model is no longer loaded.


async def test_a_load_waits_for_a_data_plane_that_is_starting(plane: DataPlane, end: PlaneEnd) -> None:
    loading = asyncio.create_task(plane.load(ORDER))
    await asyncio.sleep(0.05)
    await end.accept()
    key = (await end.expect("load"))["key"]
    end.send({"type": "loaded", "key": key})
    assert await loading == key


async def test_a_load_does_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane, "_PATIENCE_S", 0.01)
    with pytest.raises(Restarting, match="the data plane is not running"):
        await DataPlane(b"\0nobody").load(ORDER)


async def test_a_requested_report_is_counted_before_gather_returns(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    await plane.reached()
    gathering = asyncio.create_task(plane.gather())
    number = (await end.expect("gather"))["gather"]
    end.send({"type": "report", "gather": 0, "models": []})
    end.send({"type": "report", "gather": number, "models": [1]})
    await gathering
    assert [len(report["models"]) for report in listener(plane).reports] == [0, 1]


async def test_questions_are_answered_concurrently(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    listener(plane).may_answer.clear()
    for number, kind in enumerate(("resolve", "broken", "picture")):
        end.send({"type": "question", "question": number, "kind": kind}, kind.encode())
    end.send({"type": "trace"})
    await eventually_async(lambda: bool(listener(plane).traces))
    listener(plane).may_answer.set()
    answers = [await end.read_frame() for _ in range(2)]
    assert answers == [
        ({"type": "answer", "question": 0, "echo": "resolve"}, b"resolve"),
        ({"type": "answer", "question": 2, "echo": "picture"}, b"picture"),
    ]


async def test_the_answer_for_a_lost_data_plane_is_not_sent_to_another(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    listener(plane).may_answer.clear()
    end.send({"type": "question", "question": 1, "kind": "resolve"})
    await asyncio.sleep(0.05)
    end.leave()
    await end.accept()
    listener(plane).may_answer.set()
    await asyncio.sleep(0.05)
    plane.order(KEYS)
    await end.expect("keys")


async def test_connections_are_passed_on(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    read, write = os.pipe()
    end.send({"type": "connection"}, descriptors=[read])
    await eventually_async(lambda: bool(listener(plane).descriptors))
    (descriptor,) = listener(plane).descriptors
    os.write(write, b"x")
    assert os.read(descriptor, 1) == b"x"
    for each in (read, write, descriptor):
        os.close(each)


async def test_a_data_plane_of_another_release_is_an_error(plane: DataPlane, end: PlaneEnd) -> None:
    """For example in a checkout whose native code was not built again."""
    await end.accept(protocol=PROTOCOL - 1)
    with pytest.raises(NotStarted, match=f"uses version {PROTOCOL - 1} of the protocol, not {PROTOCOL}"):
        await plane.reached()
    assert not plane.is_reached
    end.leave()
    await end.accept()
    await plane.reached()
