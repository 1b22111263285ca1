"""A full queue refuses before it reads; a client that leaves the queue is never computed for."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import numpy as np
import pytest
from starlette.types import Message

from tests.support.data_plane import DataPlane, as_json
from tests.support.runners import FunctionRunner, identity
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S, eventually_async

pytestmark = pytest.mark.anyio


class Held:
    """A data plane whose model stands still until `opened` is set."""

    def __init__(self, **scheduling: Any) -> None:
        self.opened, self.entered = threading.Event(), threading.Semaphore(0)
        self.seen: list[int] = []
        tables = Tables()
        tables.model("m", lambda: FunctionRunner(identity("UINT8", 1, 1).signature, self._run))
        self.plane = DataPlane(tables, scheduling=scheduling)

    def _run(self, x: Any) -> list[Any]:
        if x.any():  # not the warm-up
            self.entered.release()
            assert self.opened.wait(GIVE_UP_S)
            self.seen.append(int(x[0, 0]))
        return [x]

    def request(self, value: int, **sent: Any) -> Request:
        return Request(self.plane, value, **sent)

    async def running(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=GIVE_UP_S)


class Request:
    """One predict request, in the hands of a client that can see how much of it was read, and leave."""

    def __init__(
        self,
        plane: DataPlane,
        value: int,
        parameters: dict[str, Any] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        sends_after: asyncio.Event | None = None,
    ) -> None:
        document = as_json(np.array([[value]], np.uint8)) | {"parameters": parameters or {}}
        self._body = json.dumps(document).encode()
        self._left, self._sends_after = asyncio.Event(), sends_after
        self.was_read = False
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v2/models/m/infer",
            "raw_path": b"/v2/models/m/infer",
            "root_path": "",
            "query_string": b"",
            "headers": list(headers),
        }
        self.task = asyncio.ensure_future(plane.app(scope, self._receive, self._send))

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> Message:
        if not self.was_read:
            if self._sends_after:
                await self._sends_after.wait()
            self.was_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])


async def settle() -> None:
    """Lets every task go as far as it can without the model's thread."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_full_queue_answers_429_before_reading_the_body() -> None:
    held = Held(queue_size=1)
    first = held.request(1)
    await held.running()
    second, third = held.request(2), held.request(3)
    await third.task
    assert (third.status, third.was_read) == (429, False)
    assert int(third.headers[b"retry-after"]) >= 1
    held.opened.set()
    await asyncio.gather(first.task, second.task)
    assert (first.status, second.status) == (200, 200)
    await held.plane.registry.close()


async def test_a_client_that_leaves_the_queue_is_never_computed_for() -> None:
    held = Held(queue_size=2)
    first = held.request(1)
    await held.running()
    second, third = held.request(2), held.request(3)
    await settle()
    second.leave()
    await second.task
    assert second.status is None
    held.opened.set()
    await asyncio.gather(first.task, third.task)
    await held.plane.registry.close()
    assert held.seen == [1, 3]
    text = held.plane.metrics.text().decode()
    assert 'octet_requests_rejected_total{reason="canceled"} 1.0' in text
    assert 'code="499"' in text


async def test_a_client_that_leaves_gives_its_place_to_another() -> None:
    held = Held(queue_size=1)
    first = held.request(1)
    await held.running()
    second = held.request(2)
    await settle()
    second.leave()
    await second.task
    third = held.request(3)
    await settle()
    held.opened.set()
    await asyncio.gather(first.task, third.task)
    assert (first.status, third.status) == (200, 200)
    await held.plane.registry.close()


async def test_the_metrics_of_a_request_that_waits() -> None:
    held = Held(queue_size=2)
    first = held.request(1)
    await held.running()
    second = held.request(2)
    await settle()
    text = held.plane.metrics.text().decode()
    assert 'octet_inflight_requests{model="m"} 2.0' in text
    assert 'octet_queue_depth{model="m"} 1.0' in text
    held.opened.set()
    await asyncio.gather(first.task, second.task)
    text = held.plane.metrics.text().decode()
    assert 'octet_inflight_requests{model="m"} 0.0' in text
    assert 'octet_queue_depth{model="m"} 0.0' in text
    await held.plane.registry.close()
    assert 'octet_inflight_requests{model="m"}' not in held.plane.metrics.text().decode()


@pytest.mark.parametrize(
    "sent",
    [{"headers": ((b"octet-timeout-ms", b"20"),)}, {"parameters": {"timeout": 20_000}}],
    ids=["header", "parameter"],
)
async def test_a_request_that_cannot_begin_in_time_is_answered_504_and_never_computed(sent: dict[str, Any]) -> None:
    held = Held(queue_size=2)
    first = held.request(1)
    await held.running()
    second = held.request(2, **sent)
    async with asyncio.timeout(GIVE_UP_S / 2):
        await second.task
    assert second.status == 504
    held.opened.set()
    await first.task
    await held.plane.registry.close()
    assert held.seen == [1]
    assert b'octet_requests_rejected_total{reason="deadline"} 1.0' in held.plane.metrics.text()


@pytest.mark.parametrize(
    "parameters", [{"priority": 4}, {"priority": -1}, {"priority": "1"}, {"timeout": 1.5}], ids=str
)
async def test_terms_that_make_no_sense_are_refused(parameters: dict[str, Any]) -> None:
    held = Held(queue_size=2)
    request = held.request(1, parameters=parameters)
    await request.task
    assert request.status == 400
    await held.plane.registry.close()
    assert held.seen == []


async def test_who_sends_slowly_keeps_nobody_out() -> None:
    held = Held(queue_size=1)
    first = held.request(1)
    await held.running()
    whole = asyncio.Event()
    slow = held.request(2, sends_after=whole)
    served = await held.plane.registry.acquire("m")
    await eventually_async(lambda: served.admitted == 2 and served.queue.waiting() == 0)  # its place is lent
    served.release()
    third = held.request(3)
    await settle()
    whole.set()
    await slow.task
    assert slow.status == 429  # the place is the third's now
    held.opened.set()
    await asyncio.gather(first.task, third.task)
    assert (first.status, third.status) == (200, 200)
    await held.plane.registry.close()
