"""How slowly a body may come, whichever code then reads it; and what is left of a connection."""

from __future__ import annotations

import gc
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

from service.api.oip.body import Head, read_body
from service.api.oip.front.connection import Connection
from service.api.oip.front.shortcut import Shortcut, Shortened
from tests.support.manual_clock import ManualClock
from tests.support.uvicorn_thread import listening
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually

_STALL_S = 4.0
_LIMIT_BYTES = 1 << 20
_HEAD_BYTES = 20_000
_PREDICT, _UPLOAD = "/v2/models/m/infer", "/upload"  # the shortcut's path, and uvicorn's


class Arrivals:
    """How many bytes the server has read, and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._count_bytes = 0
        self._changed = threading.Condition()

    def add(self, count_bytes: int) -> None:
        with self._changed:
            self._count_bytes += count_bytes
            self._changed.notify_all()

    def send(self, client: socket.socket, data: bytes) -> None:
        """Returns when the server has read them."""
        expected_bytes = self._count_bytes + len(data)
        client.sendall(data)
        with self._changed:
            assert self._changed.wait_for(lambda: self._count_bytes >= expected_bytes, WORK_TIMEOUT_S)


@pytest.fixture(scope="module")
def arrivals() -> Iterator[Arrivals]:
    arrivals = Arrivals()
    original = Shortened.buffer_updated

    def counted(self: Shortened, nbytes: int) -> None:
        original(self, nbytes)
        arrivals.add(nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shortened, "buffer_updated", counted)
        yield arrivals


@pytest.fixture(scope="module")
def address(arrivals: Arrivals) -> Iterator[tuple[str, int]]:
    """Answers with how many bytes it was sent."""
    app = FastAPI()

    async def predict(scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, Head.of(scope["headers"]), _LIMIT_BYTES)
        said = b"%d" % body.remaining_bytes
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})

    @app.put(_UPLOAD)
    async def upload(request: Request) -> int:
        return len(await request.body())

    app.state.shortcut = Shortcut(predict, _LIMIT_BYTES)
    settings: dict[str, Any] = {"stall_timeout_s": _STALL_S, "min_body_bytes_per_s": 100, "max_head_bytes": _HEAD_BYTES}
    with listening(app, clock=arrivals.clock, **settings) as where:
        host, _, port = where.partition(":")
        yield host, int(port)


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=GIVE_UP_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield client


@pytest.fixture(params=[_PREDICT, _UPLOAD])
def path(request: Any) -> str:
    return str(request.param)


def head(path: str, body_bytes: int) -> bytes:
    method = "POST" if path == _PREDICT else "PUT"
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {body_bytes}\r\n\r\n".encode()


def answered(client: socket.socket) -> bytes:
    """One answer, of one write."""
    received = b""
    while b"\r\n\r\n" not in received or received.endswith(b"\r\n\r\n"):
        received += client.recv(1 << 16)
    return received


def test_a_body_that_goes_on_may_take_longer_than_a_standstill(
    arrivals: Arrivals, client: socket.socket, path: str
) -> None:
    pieces = 16
    arrivals.send(client, head(path, pieces * 1000))
    for _ in range(pieces):
        arrivals.send(client, bytes(1000))
        arrivals.clock.advance(_STALL_S / 5)
    assert answered(client).endswith(b"\r\n\r\n16000")


@pytest.mark.parametrize("drip", [b"", b"x"], ids=["stands still", "drips"])
def test_one_that_does_not_is_refused(arrivals: Arrivals, client: socket.socket, path: str, drip: bytes) -> None:
    arrivals.send(client, head(path, 10_000) + bytes(1000))
    for _ in range(9):
        arrivals.send(client, drip)
        arrivals.clock.advance(_STALL_S / 10)
    arrivals.clock.advance(_STALL_S / 5)
    received = answered(client)
    assert received.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"stood still, or came too slowly" in received


def test_a_body_is_not_measured_by_the_time_before_it(arrivals: Arrivals, client: socket.socket, path: str) -> None:
    """One timer serves for many bodies: the first sets it, the second begins when it is about to go off."""
    for gap_s, rest_s in ((0.01, 0.8 * _STALL_S), (0.4 * _STALL_S, 0.0)):
        arrivals.send(client, head(path, 20) + bytes(10))
        arrivals.clock.advance(gap_s)
        client.sendall(bytes(10))
        assert answered(client).endswith(b"\r\n\r\n20")
        arrivals.clock.advance(rest_s)


@pytest.mark.parametrize("line_bytes", [100, _HEAD_BYTES])
def test_a_head_may_have_so_many_bytes_however_they_arrive(client: socket.socket, path: str, line_bytes: int) -> None:
    """And who follows it is not answered where it is too large."""
    lines = 0.8 * _HEAD_BYTES // line_bytes
    fitting, large = (more(head(path, 5), line_bytes, int(count)) for count in (lines, 2 * lines + 1))
    client.sendall(fitting + b"01234")
    assert answered(client).endswith(b"\r\n\r\n5")
    client.sendall(large + b"01234" + head(path, 5) + b"01234")
    assert until_closed(client).split(b"\r\n\r\n")[1:] == [b"the head of the request is too large"]


def more(head: bytes, line_bytes: int, count: int) -> bytes:
    """`head` with so many lines more, each of other name."""
    lines = b"".join(b"x-%d: %s\r\n" % (index, bytes(line_bytes).replace(b"\0", b"a")) for index in range(count))
    return head.removesuffix(b"\r\n") + lines + b"\r\n"


@pytest.mark.parametrize("line_bytes", [100, 10 * _HEAD_BYTES])
def test_so_may_what_follows_a_body_in_chunks(client: socket.socket, line_bytes: int) -> None:
    whole = f"PUT {_UPLOAD} HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n".encode()
    client.sendall(more(whole + b"\r\n", 100, 10))
    assert answered(client).endswith(b"\r\n\r\n3")
    client.sendall(more(whole + b"\r\n", line_bytes, 2 * _HEAD_BYTES // line_bytes + 1))
    assert until_closed(client) in (b"", answer_to_large())


def answer_to_large() -> bytes:
    why = b"the head of the request is too large"
    return (
        b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(why), why)
    )


def until_closed(client: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            received += piece
    return received


def test_nothing_is_left_of_a_connection_that_was_reset(client: socket.socket, path: str) -> None:
    client.sendall(head(path, 20) + bytes(20))
    assert answered(client).endswith(b"\r\n\r\n20")
    assert held() == 1
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    eventually(lambda: not held())  # a kept connection would wait for the next request, and its clock stands still


def held() -> int:
    """How many connections the server has in memory."""
    gc.collect()
    return sum(1 for each in gc.get_objects() if issubclass(type(each), Connection))
