"""Invalid requests, each with its only permitted response, and clients that disconnect in the middle of a request.

A model whose queue is full refuses a request before it is validated.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import grpc
import httpx

from benchmarks.harness.predictions import GRPC_INFER
from benchmarks.harness.server import Server
from benchmarks.serving.soak.actors import REFUSED, Actor, Unexpected, checked, hold
from benchmarks.serving.soak.lifecycle import LIVE
from benchmarks.serving.soak.predicting import Question, message_of
from service.runtime.protocol import HEADER_LENGTH

_ANSWER_S = 60.0
_LEAVES_S = 0.01  # Time after which a gRPC client disconnects.
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: a reset instead of an orderly close.
_TOO_MANY_BYTES = 1 << 40

Bad = tuple[str, dict[str, Any], int]  # the path, the arguments for httpx, and the expected status


def hostile_clients(client: httpx.Client, channel: grpc.Channel, server: Server, question: Question) -> list[Actor]:
    posts, pushes = itertools.cycle(_bad_posts(question)), itertools.cycle(_bad_pushes())
    raw, calls = itertools.cycle(_malformed(question)), itertools.cycle(_bad_calls(question))
    leaving = itertools.cycle(_half_sent(question))
    infer = channel.unary_unary(GRPC_INFER)

    def bad_post() -> str:
        path, sent, status = next(posts)
        return checked(client.post(path, **sent), status, REFUSED)

    def bad_push() -> str:
        path, sent, status = next(pushes)
        return checked(client.put(path, **sent), status)

    def malformed() -> str:
        sent, statuses = next(raw)
        with closing(_connect(server)) as connection:
            connection.sendall(sent)
            first = connection.recv(100).decode("latin-1")
        status = first.split()[1] if first.startswith("HTTP/1.1 ") else first or "closed"
        if status not in (*statuses, str(REFUSED)):
            raise Unexpected(f"{sent[:80]!r}: {first!r}, not {statuses}", status)
        return status

    def bad_call() -> str:
        message, wanted = next(calls)
        try:
            infer(message, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                hold(error.code(), wanted, f"gRPC, {error.details()}")
            return str(error.code().name)
        raise Unexpected(f"a call that should fail with {wanted} succeeded")

    def leave() -> str:
        sent, resets = next(leaving)
        with closing(_connect(server)) as connection:
            connection.sendall(sent)
            if resets:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        return "left"

    def leave_grpc() -> str:
        call = infer.future(message_of(question).SerializeToString(), timeout=_LEAVES_S)
        with suppress(grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError):
            call.result(_LEAVES_S / 2)
        call.cancel()
        return "left"

    def leave_a_stream() -> str:
        """Disconnects from a stream of a build's events, and from a response that is only partly read."""
        (build,) = client.get("/api/v1/builds", params={"model": LIVE, "limit": "1"}).json()["builds"]
        with client.stream("GET", f"/api/v1/builds/{build['id']}/events") as response:
            checked(response, 200)
            next(response.iter_raw(), b"")
        return "left"

    return [
        Actor("bad request", 0.2, bad_post),
        Actor("bad push", 2.0, bad_push),
        Actor("malformed", 0.5, malformed),
        Actor("bad gRPC", 0.5, bad_call),
        Actor("leaves", 0.2, leave),
        Actor("leaves gRPC", 0.5, leave_grpc),
        Actor("leaves a stream", 3.0, leave_a_stream),
    ]


def _bad_posts(question: Question) -> Sequence[Bad]:
    path, octets = question.path, question.image.tobytes()
    shape = list(question.image.shape)

    def asking(**changed: Any) -> dict[str, Any]:
        tensor = {"name": question.input, "shape": [1], "datatype": question.datatype, "data": [1]}
        return {"content": json.dumps({"inputs": [{**tensor, **changed}]})}

    return [
        ("/v2/models/nobody/infer", {"json": {"inputs": []}}, 404),
        (f"/v2/models/{question.model}/versions/999999/infer", asking(), 404),
        (path, {"content": b"{"}, 400),
        (path, {"content": b""}, 400),
        (path, {"content": b"[" * 100_000}, 400),
        (path, {"json": {"inputs": []}}, 400),
        (path, {"json": {"inputs": 3}}, 400),
        (path, asking(name="?"), 400),
        (path, asking(), 400),
        (path, asking(shape=[-1]), 400),
        (path, asking(shape=[1 << 60] * 8), 400),
        (path, asking(shape=shape, datatype="FP64"), 400),
        (path, asking(shape=shape, data=["a"]), 400),
        (path, asking(shape=shape, data=[1e999]), 400),
        (path, asking(shape=shape, parameters={"binary_data_size": 1 << 50}), 400),
        (path, {"content": octets[:-1], "headers": {HEADER_LENGTH: "0"}}, 400),
        (path, {"content": octets + b"1", "headers": {HEADER_LENGTH: "0"}}, 400),
        (path, {"content": octets, "headers": {HEADER_LENGTH: "999999999"}}, 400),
        (path, {"content": octets, "headers": {HEADER_LENGTH: "-1"}}, 400),
        (path, {"content": octets, "headers": {"Content-Encoding": "gzip"}}, 400),
        (path, {"content": octets, "headers": {"Content-Encoding": "br"}}, 415),
        (path, {"content": b"\x89PNG\r\n\x1a\n" + octets[:100], "headers": {"Content-Type": "image/png"}}, 400),
        (f"/v2/repository/models/{question.model}/load", {"content": b"[]"}, 400),
        ("/v2/repository/models/nobody/load", {"json": {}}, 404),
        (f"/api/v1/models/{LIVE}/promote", {"json": {"version": 999_999}}, 404),
        (f"/api/v1/models/{LIVE}/promote", {"json": {"version": "x"}}, 400),
        ("/api/v1/models/nobody/rollback", {"json": {}}, 404),
        ("/api/v1/nothing", {"json": {}}, 404),
        ("/v2/health/live", {"json": {}}, 405),
    ]


def _bad_pushes() -> Sequence[Bad]:
    def pushing(content: bytes, **query: str) -> dict[str, Any]:
        return {"params": {"name": "soak-nothing", "target": "host", **query}, "content": content}

    return [
        ("/api/v1/models", pushing(b"nothing"), 415),
        ("/api/v1/models", pushing(b""), 400),
        ("/api/v1/models", pushing(b"nothing", name="No/Name"), 400),
        ("/api/v1/models", pushing(b"nothing", target="z80"), 422),
        ("/api/v1/models", pushing(b"nothing", numerics="guessed"), 422),
        ("/api/v1/blobs/sha256:" + "0" * 64, {"content": b"of another digest"}, 400),
    ]


def _malformed(question: Question) -> Sequence[tuple[bytes, Sequence[str]]]:
    """Returns bytes that are not HTTP, with the permitted statuses of the response; `closed` if the server may just
    close.
    """
    post = f"POST {question.path} HTTP/1.1\r\nHost: [::1]\r\n".encode()
    return [
        (b"GET\r\n\r\n", ["400"]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), ["400"]),
        (post + b"Content-Length: -1\r\n\r\n", ["400"]),
        (post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello", ["400"]),
        (post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", ["400"]),
        (post + b"Content-Length: %d\r\n\r\n" % _TOO_MANY_BYTES, ["413"]),
        (post + b"X-Much: " + b"x" * 100_000 + b"\r\n\r\n", ["431", "400"]),
    ]


def _bad_calls(question: Question) -> Sequence[tuple[bytes, grpc.StatusCode]]:
    nobody, short, other, bare = (message_of(question) for _ in range(4))
    nobody.model_name = "nobody"
    short.raw_input_contents[0] = short.raw_input_contents[0][:-1]
    other.inputs[0].datatype = "FP64"
    del bare.inputs[:]
    wrong = grpc.StatusCode.INVALID_ARGUMENT
    return [
        (nobody.SerializeToString(), grpc.StatusCode.NOT_FOUND),
        *((message.SerializeToString(), wrong) for message in (short, other, bare)),
    ]


def _half_sent(question: Question) -> Sequence[tuple[bytes, bool]]:
    """Returns the bytes that are sent before the client disconnects, and whether it does so by a reset."""
    body = question.image.tobytes()
    head = f"POST {question.path} HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(body)}\r\n{HEADER_LENGTH}: 0\r\n\r\n"
    request = head.encode() + body
    push = b"PUT /api/v1/models?name=soak-left&target=host HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 100000\r\n\r\nTFL"
    sent = [b"", request[:30], head.encode(), request[:-1], request, push, request[:70_000], request + request[:50]]
    return [(each, resets) for resets in (False, True) for each in sent]


def _connect(server: Server) -> socket.socket:
    connection = socket.create_connection((server.host, server.port), timeout=_ANSWER_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
