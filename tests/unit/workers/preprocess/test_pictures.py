"""Tests of which picture is decoded next, and how many are decoded at the same time. Decoding ends only when the test
releases it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from service.core.models.picture import MAX_PIXELS
from service.workers.preprocess.pictures import SMALL_PIXELS, Endless, PictureQueue, Progress
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio
GIVE_UP_S = 60.0
LARGE, MEDIUM_PIXELS = MAX_PIXELS, 4 << 20


class Pictures:
    """A queue with three threads, and pictures that record when their decoding begins."""

    def __init__(self, largest_at_a_time: int = 1) -> None:
        self._queue = PictureQueue(3, largest_at_a_time)
        self._loop = asyncio.get_running_loop()
        self._released: dict[str, threading.Event] = {}
        self._began: dict[str, asyncio.Event] = {}
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[bytes]] = {}

    async def send(self, name: str, client: str, pixels: int | None) -> None:
        self._released[name], self._began[name] = threading.Event(), asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._queue.run(client, pixels, self._decode(name)))
        await asyncio.sleep(0)  # after this, the picture is in the queue

    def _decode(self, name: str) -> Callable[[Callable[[], bool]], bytes]:
        def decode(is_withdrawn: Callable[[], bool]) -> bytes:
            self.order.append(name)
            self._loop.call_soon_threadsafe(self._began[name].set)
            while not self._released[name].wait(0.005):
                if is_withdrawn():
                    raise RuntimeError("withdrawn")
            return name.encode()

        return decode

    async def began(self, name: str) -> None:
        await asyncio.wait_for(self._began[name].wait(), GIVE_UP_S)

    async def finish(self, name: str) -> None:
        self._released[name].set()
        assert await asyncio.wait_for(self.tasks[name], GIVE_UP_S) == name.encode()

    async def withdraw(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.wait([self.tasks[name]])
        assert self.tasks[name].cancelled()

    def release_all(self) -> None:
        for event in self._released.values():
            event.set()


@asynccontextmanager
async def pictures(largest_at_a_time: int = 1) -> AsyncIterator[Pictures]:
    made = Pictures(largest_at_a_time)
    try:
        yield made
    finally:
        made.release_all()
        await asyncio.gather(*made.tasks.values(), return_exceptions=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_clients_take_turns() -> None:
    async with pictures() as service:
        for number in range(3):
            await service.send(f"first {number}", "10.0.0.1", LARGE)
        await service.send("second", "10.0.0.2", LARGE)
        await service.began("first 0")
        await service.finish("first 0")
        await service.began("second")
        assert service.order == ["first 0", "second"]


async def test_a_small_picture_is_decoded_beside_large_ones() -> None:
    async with pictures() as service:
        for number in range(8):
            await service.send(f"large {number}", "10.0.0.1", LARGE)
        await service.send("small", "10.0.0.2", SMALL_PIXELS)
        await service.began("small")
        await service.finish("small")
        assert service.order == ["large 0", "small"]


async def test_a_picture_of_each_size_is_decoded_beside_larger_ones() -> None:
    async with pictures(largest_at_a_time=8) as service:
        for number in range(8):
            await service.send(f"large {number}", f"10.0.0.{number}", LARGE)
        for number in range(8):
            await service.send(f"medium {number}", f"10.0.0.{number}", MEDIUM_PIXELS)
        await service.began("medium 0")
        await service.send("small", "10.0.1.0", SMALL_PIXELS)
        await service.began("small")
        assert service.order == ["large 0", "medium 0", "small"]


async def test_a_client_leaves_room_for_the_largest_picture_of_another() -> None:
    queue, released = PictureQueue(8, largest_at_a_time=2), threading.Event()
    began: list[str] = []

    def decode(name: str) -> Callable[[Progress], bytes]:
        def work(_: Progress) -> bytes:
            began.append(name)
            return bytes(released.wait(GIVE_UP_S))

        return work

    clients = ("first", "first", "second", "third")
    tasks = [asyncio.create_task(queue.run(client, LARGE, decode(client))) for client in clients]
    try:
        await eventually_async(lambda: len(began) == 2)
        assert sorted(began) == ["first", "second"]
    finally:
        released.set()
        await asyncio.gather(*tasks)


async def test_large_pictures_are_decoded_despite_many_small_ones() -> None:
    async with pictures() as service:
        for number in range(8):
            await service.send(f"small {number}", "10.0.0.1", 1)
        await service.send("large", "10.0.0.2", LARGE)
        await service.finish("small 0")
        await service.began("large")
        assert service.order[:3] == ["small 0", "small 1", "small 2"]
        assert len(service.order) == 4


@pytest.mark.parametrize("pixels", [LARGE, None, 2**63])
async def test_large_pictures_together_use_the_memory_of_one(pixels: int | None) -> None:
    async with pictures() as service:
        await service.send("first", "10.0.0.1", pixels)
        await service.send("second", "10.0.0.2", MEDIUM_PIXELS + 1)
        await service.send("small", "10.0.0.3", 1)
        await service.began("small")
        assert sorted(service.order) == ["first", "small"]
        await service.finish("first")
        await service.began("second")


async def test_a_picture_canceled_while_it_waits_is_not_decoded() -> None:
    async with pictures() as service:
        for name in ("first", "second", "third"):
            await service.send(name, "10.0.0.1", LARGE)
        await service.began("first")
        await service.withdraw("second")
        await service.finish("first")
        await service.began("third")
        assert service.order == ["first", "third"]


async def test_a_picture_canceled_while_it_is_decoded_frees_its_memory() -> None:
    async with pictures() as service:
        await service.send("first", "10.0.0.1", LARGE)
        await service.send("second", "10.0.0.2", LARGE)
        await service.began("first")
        await service.withdraw("first")
        await service.began("second")


async def test_a_piece_has_a_limit_of_processor_time() -> None:
    queue, may_end = PictureQueue(), threading.Event()

    def decode(progress: Progress) -> bytes:
        progress.begin_piece(0.02)
        time.sleep(0.05)  # needs no processor time
        progress.begin_piece(0.02)
        while not may_end.is_set():
            pass
        return b""

    work = asyncio.create_task(queue.run("10.0.0.1", 1, decode))
    try:
        began_s = time.monotonic()
        await eventually_async(queue.fail_overdue)
        assert time.monotonic() - began_s > 0.06
        with pytest.raises(Endless):
            await work
    finally:
        may_end.set()


async def test_work_that_exceeds_its_limit_fails() -> None:
    queue, may_end = PictureQueue(), threading.Event()
    work = asyncio.create_task(queue.run("10.0.0.1", 1, lambda _: bytes(may_end.wait(GIVE_UP_S)), limit_s=0.01))
    try:
        await eventually_async(queue.fail_overdue)
        with pytest.raises(Endless, match="takes too long to preprocess"):
            await work
    finally:
        may_end.set()
    assert not queue.fail_overdue()


async def test_an_exception_that_a_future_cannot_contain_fails_the_work() -> None:
    def decode(_: Progress) -> bytes:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(PictureQueue().run("10.0.0.1", 1, decode), GIVE_UP_S)


async def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    async with pictures() as service:
        await service.send("running", "2001:db8::1", LARGE)
        for number in range(3):
            await service.send(f"network {number}", f"2001:db8::{number + 2}", LARGE)
        await service.send("other", "2001:db8:1::1", LARGE)
        await service.began("running")
        await service.finish("running")
        await service.began("other")
        assert service.order == ["running", "other"]


async def test_a_picture_that_is_withdrawn_twice_ends_after_its_thread() -> None:
    """Otherwise, the exception that ends the decoding would be lost, and the next picture would begin too soon."""
    began, ended = threading.Event(), threading.Event()

    def decode(is_withdrawn: Callable[[], bool]) -> bytes:
        began.set()
        while not is_withdrawn():
            time.sleep(0.001)
        time.sleep(0.05)
        ended.set()
        raise RuntimeError("withdrawn")

    task = asyncio.create_task(PictureQueue().run("client", LARGE, decode))
    assert await asyncio.to_thread(began.wait, GIVE_UP_S)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task], timeout=GIVE_UP_S)
    assert task.cancelled()
    assert ended.is_set()
