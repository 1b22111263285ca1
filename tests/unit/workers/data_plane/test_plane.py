"""What the control plane tells a data plane that comes and goes, and what it makes of what it hears."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.core.errors import NotReady, Restarting
from service.workers.data_plane import plane as data_plane
from service.workers.data_plane.orders import Named
from service.workers.data_plane.plane import Answer, DataPlane, Found, Unheard
from tests.support.plane_end import PlaneEnd
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio
ORDER = {"type": "load", "model": "m", "version": "1", "queue_size": 8}
OTHER = {**ORDER, "version": "2"}
CONFIGURE, KEYS = {"type": "configure", "not_ready": ""}, {"type": "keys", "keys": []}
ROUTES = {"type": "routes", "routes": []}

Members = dict[str, Any]


class Listener(Unheard):
    def __init__(self) -> None:
        self.finds: list[Found] = []
        self.reports: list[Members] = []
        self.traces: list[Members] = []
        self.descriptors: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def found(self, found: Found) -> None:
        self.finds.append(found)

    def reported(self, report: Members) -> None:
        self.reports.append(report)

    def traced(self, trace: Members) -> None:
        self.traces.append(trace)

    def connected(self, descriptor: int) -> None:
        self.descriptors.append(descriptor)

    async def asked(self, question: Members, data: bytes) -> Answer:
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
    """Has a model loaded; its key."""
    loading = asyncio.create_task(plane.load(order))
    members = await end.heard("load")
    assert {**members, "key": 0} == {**order, "key": 0}
    end.say({"type": "loaded", "key": members["key"]})
    assert await loading == members["key"]
    return int(members["key"])


async def test_what_stands_is_said_to_each_that_comes_in_place_of_what_stood_before(
    plane: DataPlane, end: PlaneEnd
) -> None:
    for order in (CONFIGURE, KEYS, {**CONFIGURE, "not_ready": "soon"}):
        plane.order(order)
    for _ in range(2):
        await end.accept()
        assert [await end.heard("configure"), await end.heard("keys")] == [{**CONFIGURE, "not_ready": "soon"}, KEYS]
        end.leave()


async def test_an_order_that_stands_already_is_not_said_again(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    await plane.reached()
    for order in (KEYS, KEYS, CONFIGURE):
        plane.order(order)
    assert [await end.heard("keys"), await end.heard("configure")] == [KEYS, CONFIGURE]


async def test_who_answers_is_not_said_to_another_data_plane_which_has_nothing_of_it(
    plane: DataPlane, end: PlaneEnd
) -> None:
    await end.accept()
    await plane.reached()
    plane.order(ROUTES)
    plane.order(KEYS)
    await end.heard("routes")
    end.leave()
    await end.accept()
    await end.heard("keys")
    plane.order(ROUTES)
    await end.heard("routes")


async def test_what_is_there_is_told(plane: DataPlane, end: PlaneEnd) -> None:
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


async def test_a_model_that_leaves_does_not_lend_its_key(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    first = await loaded(plane, end)
    second = await loaded(plane, end)
    leaving = asyncio.create_task(plane.unload(first))
    assert (await end.heard("unload"))["key"] == first
    third = await loaded(plane, end)
    assert len({first, second, third}) == 3
    assert not leaving.done()
    end.say({"type": "unloaded", "key": first})
    await leaving


async def test_callers_that_want_the_same_at_a_time_share_a_load(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    loads = [asyncio.create_task(plane.load(ORDER)) for _ in range(2)]
    key = (await end.heard("load"))["key"]
    end.say({"type": "loaded", "key": key})
    assert await asyncio.gather(*loads) == [key, key]


async def test_what_cannot_be_loaded_says_why(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    for code, kind in (("not_ready", NotReady), ("memory_full", NotReady), ("unheard_of", NotReady)):
        loading = asyncio.create_task(plane.load(ORDER))
        key = (await end.heard("load"))["key"]
        end.say({"type": "failed", "key": key, "code": code, "detail": "no room", "hint": "buy some"})
        with pytest.raises(kind, match="no room") as caught:
            await loading
        assert caught.value.hint == "buy some"
    assert plane.leftovers() == set()


async def test_a_data_plane_that_is_lost_ends_what_waits_for_it(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    key = await loaded(plane, end)
    waiting = [
        asyncio.create_task(plane.load(OTHER)),
        asyncio.create_task(plane.unload(key)),
        asyncio.create_task(plane.gather()),
    ]
    for kind in ("load", "unload", "gather"):
        await end.heard(kind)
    end.leave()
    with pytest.raises(Restarting, match="ended meanwhile"):
        await waiting[0]
    await asyncio.gather(*waiting[1:])
    assert plane.leftovers() == set()
    await plane.gather()  # of nobody
    await plane.unload(key)  # which is gone


async def test_a_load_waits_for_a_data_plane_that_is_on_its_way(plane: DataPlane, end: PlaneEnd) -> None:
    loading = asyncio.create_task(plane.load(ORDER))
    await asyncio.sleep(0.05)
    await end.accept()
    key = (await end.heard("load"))["key"]
    end.say({"type": "loaded", "key": key})
    assert await loading == key


async def test_a_load_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_plane, "_PATIENCE_S", 0.01)
    with pytest.raises(Restarting, match="the data plane is not running"):
        await DataPlane(b"\0nobody").load(ORDER)


async def test_a_report_that_was_asked_for_is_counted_before_it_is_over(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    await plane.reached()
    gathering = asyncio.create_task(plane.gather())
    number = (await end.heard("gather"))["gather"]
    end.say({"type": "report", "gather": 0, "models": []})
    end.say({"type": "report", "gather": number, "models": [1]})
    await gathering
    assert [report["models"] for report in listener(plane).reports] == [[], [1]]


async def test_questions_are_answered_beside_each_other(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    listener(plane).may_answer.clear()
    for number, kind in enumerate(("resolve", "broken", "picture")):
        end.say({"type": "question", "question": number, "kind": kind}, kind.encode())
    end.say({"type": "trace"})
    await eventually_async(lambda: bool(listener(plane).traces))
    listener(plane).may_answer.set()
    answers = [await end.hear() for _ in range(2)]
    assert answers == [
        ({"type": "answer", "question": 0, "echo": "resolve"}, b"resolve"),
        ({"type": "answer", "question": 2, "echo": "picture"}, b"picture"),
    ]


async def test_the_answer_to_a_data_plane_that_is_gone_is_told_to_no_other(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    listener(plane).may_answer.clear()
    end.say({"type": "question", "question": 1, "kind": "resolve"})
    await asyncio.sleep(0.05)
    end.leave()
    await end.accept()
    listener(plane).may_answer.set()
    await asyncio.sleep(0.05)
    plane.order(KEYS)
    await end.heard("keys")


async def test_connections_are_handed_on(plane: DataPlane, end: PlaneEnd) -> None:
    await end.accept()
    read, write = os.pipe()
    end.say({"type": "connection"}, descriptors=[read])
    await eventually_async(lambda: bool(listener(plane).descriptors))
    (descriptor,) = listener(plane).descriptors
    os.write(write, b"x")
    assert os.read(descriptor, 1) == b"x"
    for each in (read, write, descriptor):
        os.close(each)
