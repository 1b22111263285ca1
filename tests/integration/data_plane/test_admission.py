"""If the queue is full, a request is refused before its body is read. If a client disconnects, its request is never
computed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.data_plane import as_json
from tests.support.gated_plane import GatedPlane
from tests.support.waiting import GIVE_UP_S

pytestmark = pytest.mark.anyio


class Request:
    """One predict request. The test decides when its client sends the body, and whether it disconnects."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
        self._reader, self._writer, self._body = reader, writer, body

    async def send(self) -> None:
        self._writer.write(self._body)
        await self._writer.drain()

    async def answer(self) -> httpx.Response:
        """Returns the response. The rest of the connection is not read."""
        async with asyncio.timeout(GIVE_UP_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            content = await self._reader.readexactly(int(headers["content-length"]))
        self.leave()
        return httpx.Response(int(head[0].split()[1]), headers=headers, content=content)

    async def has_answer(self) -> None:
        """Waits until the response begins. Does not read it."""
        while not self._reader._buffer:  # type: ignore[attr-defined]
            await asyncio.sleep(0.005)

    def leave(self) -> None:
        self._writer.close()


class Room:
    """A data plane with one model, and methods that send requests to it."""

    def __init__(self, held: GatedPlane) -> None:
        self.held, self.gate = held, held.gate
        self._requests: list[Request] = []

    async def request(
        self,
        value: int,
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_sent: bool = True,
    ) -> Request:
        body = json.dumps(as_json(np.array([[value]], np.uint8)) | {"parameters": parameters or {}}).encode()
        host, port = self.held.plane.http.split(":")
        request = Request(*await asyncio.open_connection(host, int(port)), body)
        lines = {"Host": host, "Content-Length": str(len(body)), **(headers or {})}
        text = "".join(f"{name}: {what}\r\n" for name, what in lines.items())
        request._writer.write(f"POST /v2/models/m/infer HTTP/1.1\r\n{text}\r\n".encode())
        if is_sent:
            await request.send()
        self._requests.append(request)
        return request

    async def running(self, value: int) -> Request:
        """Sends a request that the model starts to compute and does not finish."""
        request = await self.request(value)
        await self.gate.running()
        return request

    async def waiting(self, value: int) -> Request | None:
        """Sends a request that waits in the queue. Returns None if it was refused."""
        request = await self.request(value)
        refused = asyncio.ensure_future(request.has_answer())
        while not refused.done():
            await self.held.plane.orders.gather()
            if self.held.plane.registry.in_memory()[0].queued == 1:
                refused.cancel()
                return request
            await asyncio.sleep(0.005)
        return None

    def close(self) -> None:
        self.gate.open()
        for request in self._requests:
            request.leave()


@asynccontextmanager
async def serving(**scheduling: Any) -> AsyncIterator[Room]:
    held = GatedPlane(**scheduling)
    async with held.plane.lifespan():
        room = Room(held)
        try:
            yield room
        finally:
            room.close()


async def test_a_full_queue_responds_429_before_the_body_arrives() -> None:
    async with serving(queue_size=1) as room:
        first, second = await room.running(1), await room.request(2)
        await room.held.queued(1)
        third = await room.request(3, is_sent=False)
        refusal = await third.answer()
        assert refusal.status_code == 429
        assert int(refusal.headers["retry-after"]) >= 1
        room.gate.open()
        assert [(await each.answer()).status_code for each in (first, second)] == [200, 200]


async def test_the_request_of_a_client_that_left_is_never_computed() -> None:
    async with serving(queue_size=2) as room:
        first, second = await room.running(1), await room.request(2)
        await room.held.queued(1)
        third = await room.request(3)
        await room.held.queued(2)
        second.leave()
        await room.held.queued(1)
        room.gate.open()
        assert [(await each.answer()).status_code for each in (first, third)] == [200, 200]
        assert room.gate.seen == [1, 3]
        text = await room.held.plane.scraped()
    assert 'octet_requests_rejected_total{reason="canceled"} 1.0' in text
    assert 'code="499"' in text


async def test_a_client_that_leaves_frees_its_slot_in_the_queue() -> None:
    async with serving(queue_size=1) as room:
        first, second = await room.running(1), await room.request(2)
        await room.held.queued(1)
        second.leave()
        await room.held.queued(0)
        third = await room.request(3)
        await room.held.queued(1)
        room.gate.open()
        assert [(await each.answer()).status_code for each in (first, third)] == [200, 200]


async def test_the_metrics_of_a_waiting_request() -> None:
    async with serving(queue_size=2) as room:
        first, second = await room.running(1), await room.request(2)
        await room.held.queued(1)
        text = await room.held.plane.scraped()
        assert 'octet_inflight_requests{model="m"} 2.0' in text
        assert 'octet_queue_depth{model="m"} 1.0' in text
        room.gate.open()
        await first.answer()
        await second.answer()
        text = await room.held.plane.scraped()
        assert 'octet_inflight_requests{model="m"} 0.0' in text
        assert 'octet_queue_depth{model="m"} 0.0' in text


@pytest.mark.parametrize(
    "sent",
    [{"headers": {"Octet-Timeout-Ms": "20"}}, {"parameters": {"timeout": 20_000}}],
    ids=["header", "parameter"],
)
async def test_a_request_that_cannot_begin_in_time_gets_504_and_is_never_computed(sent: dict[str, Any]) -> None:
    async with serving(queue_size=2) as room:
        first = await room.running(1)
        second = await room.request(2, **sent)
        assert (await second.answer()).status_code == 504
        room.gate.open()
        await first.answer()
        assert room.gate.seen == [1]
        assert 'octet_requests_rejected_total{reason="deadline"} 1.0' in await room.held.plane.scraped()


@pytest.mark.parametrize(
    "parameters", [{"priority": 4}, {"priority": -1}, {"priority": "1"}, {"timeout": 1.5}], ids=str
)
async def test_invalid_parameters_are_rejected(parameters: dict[str, Any]) -> None:
    async with serving(queue_size=2) as room:
        assert (await (await room.request(1, parameters)).answer()).status_code == 400
        assert room.gate.entered == 0


async def test_a_slow_sender_blocks_no_other() -> None:
    async with serving(queue_size=1) as room:
        first = await room.running(1)
        slow = await room.request(2, is_sent=False)
        await room.held.admitted(2)
        while (third := await room.waiting(3)) is None:  # until the slot of the slow request is released
            await asyncio.sleep(0.02)
        await slow.send()
        assert (await slow.answer()).status_code == 429  # the third request has the slot now
        room.gate.open()
        assert [(await each.answer()).status_code for each in (first, third)] == [200, 200]
