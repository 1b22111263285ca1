"""Predict requests take a shortcut, and nobody can tell but by the clock."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI, Request
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from service.api.oip.front.shortcut import Shortcut
from tests.support.uvicorn_thread import listening
from tests.support.waiting import GIVE_UP_S

_LONGEST_BYTES = 300_000


class Endpoint:
    """Says what it was sent, and by which handler; a request with the header `refuse` it answers before the body."""

    def __init__(self) -> None:
        self.disconnected = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if b"wait" in headers:
            await receive()
            assert (await receive())["type"] == "http.disconnect"
            self.disconnected.set()
            return
        document: dict[str, Any] = {"handler": "shortcut", "path": scope["path"], "path_params": scope["path_params"]}
        if b"refuse" not in headers:
            message = await receive()
            assert not message["more_body"]
            first_tensor = int(headers.get(b"inference-header-content-length", b"0"))
            octets = np.frombuffer(message["body"], np.uint8)
            document |= {"bytes": len(octets), "sum": int(octets.sum())}
            if len(octets) > first_tensor:
                document["misalignment"] = octets[first_tensor:].ctypes.data % 64
        body = json.dumps(document).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture(scope="module")
def address(endpoint: Endpoint) -> Iterator[tuple[str, int]]:
    app = FastAPI()
    app.state.shortcut = Shortcut(endpoint, _LONGEST_BYTES)

    @app.api_route("/{path:path}", methods=["GET", "POST"])
    async def detour(request: Request) -> dict[str, Any]:
        body = await request.body()
        return {"handler": "uvicorn", "path": request.url.path, "bytes": len(body), "sum": sum(body)}

    with listening(app) as where:
        host, _, port = where.partition(":")
        yield host, int(port)


def post(body: bytes, *headers: str, path: str = "/v2/models/m/infer") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def answers(address: tuple[str, int], *pieces: bytes, count: int = 1) -> list[dict[str, Any]]:
    """To what is sent in `pieces` on one connection."""
    with socket.create_connection(address, timeout=GIVE_UP_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            client.sendall(piece)
        with client.makefile("rb") as stream:
            return [answer(stream) for _ in range(count)]


def answer(stream: Any) -> dict[str, Any]:
    status, length = stream.readline(), 0
    assert status == b"HTTP/1.1 200 OK\r\n"
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return dict(json.loads(stream.read(length)))


def test_a_prediction_takes_the_shortcut(address: tuple[str, int]) -> None:
    (said,) = answers(address, post(b"\1" * 1000, path="/v2/models/m.x/versions/3/infer"))
    assert said == {
        "handler": "shortcut",
        "path": "/v2/models/m.x/versions/3/infer",
        "path_params": {"model": "m.x", "version": "3"},
        "bytes": 1000,
        "sum": 1000,
        "misalignment": 0,
    }


@pytest.mark.parametrize("json_bytes", [0, 1, 63, 64, 100])
def test_its_first_tensor_lies_where_kernels_want_it(address: tuple[str, int], json_bytes: int) -> None:
    request = post(bytes(200_000), f"Inference-Header-Content-Length: {json_bytes}")
    assert answers(address, request[:70_000], request[70_000:])[0]["misalignment"] == 0


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v2/models/m/infer HTTP/1.1\r\nHost: here\r\n\r\n",
        post(b"x", path="/v2/models/m/infer?a=b"),
        post(b"x", path="/v2/models/m%41/infer"),
        post(b"x", path="/v2/models/m/load"),
        post(b"", "A: b"),
        post(b"x", "Expect: 200-maybe"),
        post(b"x", "Connection: close"),
        post(b"x", "Inference-Header-Content-Length: 2"),
        post(b"x", "Twice: 1", "Twice: 1"),
        post(bytes(_LONGEST_BYTES + 1)),
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"POST /v2/models/m/infer HTTP/1.0\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx",
    ],
)
def test_what_is_not_of_the_usual_form_does_not(address: tuple[str, int], request_bytes: bytes) -> None:
    assert answers(address, request_bytes)[0]["handler"] == "uvicorn"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: 3\r\n folded\r\n",
        b"Content-Length : 3\r\n",
        b"Content-Length: 3\nA: b\r\n",
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 3\r\nA: \0\r\n",
    ],
)
def test_a_head_that_two_may_read_differently_is_refused(address: tuple[str, int], head: bytes) -> None:
    with socket.create_connection(address, timeout=GIVE_UP_S) as client:
        client.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\n" + head + b"\r\nabc")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_body_that_looks_like_a_request_is_none(address: tuple[str, int]) -> None:
    inner = post(b"inner")
    pieces = f"POST /other HTTP/1.1\r\nHost: h\r\nContent-Length: {len(inner)}\r\n\r\n".encode(), inner
    with socket.create_connection(address, timeout=GIVE_UP_S) as client, client.makefile("rb") as stream:
        client.sendall(pieces[0])
        client.sendall(pieces[1])
        assert answer(stream)["handler"] == "uvicorn"
        client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert answer(stream)["path"] == "/"


def test_a_refusal_comes_before_the_body_and_the_connection_goes_on(address: tuple[str, int]) -> None:
    request = post(bytes(100_000), "Refuse: it")
    with socket.create_connection(address, timeout=GIVE_UP_S) as client, client.makefile("rb") as stream:
        client.sendall(request[:-90_000])
        assert "bytes" not in answer(stream)
        client.sendall(request[-90_000:] + post(b"next"))
        assert answer(stream)["bytes"] == 4


def test_who_leaves_is_known_to_have_left(address: tuple[str, int], endpoint: Endpoint) -> None:
    with socket.create_connection(address, timeout=GIVE_UP_S) as client:
        client.sendall(post(b"x", "Wait: for it"))
    for _ in range(500):
        if endpoint.disconnected.is_set():
            return
        socket.create_connection(address, timeout=GIVE_UP_S).close()
    raise AssertionError("nobody noticed")


_REQUESTS = [
    post(b"\2" * 10),
    post(b"\3" * 70_000, "Inference-Header-Content-Length: 17"),
    post(b"\1" * 40, path="/elsewhere"),
    b"GET /somewhere HTTP/1.1\r\nHost: here\r\n\r\n",
    post(b"\1" * 40, "Refuse: it"),
]


@given(st.lists(st.sampled_from(_REQUESTS), min_size=1, max_size=5), st.data())
def test_however_requests_are_cut_the_answers_are_theirs(
    address: tuple[str, int], requests: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    together = answers(address, *pieces, count=len(requests))
    for said, request in zip(together, requests, strict=True):
        body = request.partition(b"\r\n\r\n")[2]
        assert said["path"] == request.split(b" ")[1].decode()
        assert said.get("sum", sum(body)) == sum(body)
