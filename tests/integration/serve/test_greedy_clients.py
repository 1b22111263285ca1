"""Clients without a key use as many resources as they can. Another client is still served in time."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from service.api.grpc import inference_pb2 as pb
from tests.support.data_plane import as_binary
from tests.support.http2_frames import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    Frame,
    Peer,
    block,
    frame,
    literal,
)
from tests.support.serving import Served, serving
from tests.support.waiting import GIVE_UP_S, eventually

NAME = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
ELSEWHERE = "127.0.0.2"  # another address of this machine, from which a client may connect
STALL_S = 3.0
TIMEOUT_S = 2.0  # time limit for responses to the other client
MAX_PREDICT_BYTES, HEAD_BYTES = 8 << 20, 64 << 10
_PAGES, _FILLING = ("/api/v1/openapi.json", "/metrics"), 24
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {"stall_timeout_s": STALL_S, "max_predict_bytes": MAX_PREDICT_BYTES}
    with serving(tmp_path_factory.mktemp("served"), **settings) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        yield served
        assert served.stop() == 0


@pytest.fixture
def port(served: Served) -> int:
    assert served.grpc is not None
    return int(served.grpc.rpartition(":")[2])


def head(method: str, service: str = NAME) -> list[tuple[str, str]]:
    fields = [(":method", "POST"), (":scheme", "http"), (":path", f"/{service}/{method}"), (":authority", "test")]
    return [*fields, ("content-type", "application/grpc"), ("te", "trailers")]


class Other:
    """A client that continuously sends predictions, each on a new connection, and health requests."""

    def __init__(self, served: Served) -> None:
        assert served.grpc is not None
        self._address = served.grpc
        self.slowest_s, self.answers, self.failures = 0.0, 0, list[Any]()
        request = pb.ModelInferRequest(model_name="digits", raw_input_contents=[bytes(256)])
        request.inputs.add(name="image", datatype="INT8", shape=(1, 16, 16, 1))
        self._request = request.SerializeToString()

    def ask(self) -> None:
        began_s = time.monotonic()
        try:
            with grpc.insecure_channel(self._address, _OWN_CONNECTION) as channel:
                channel.unary_unary(f"/{NAME}/ModelInfer")(self._request, timeout=TIMEOUT_S)
                channel.unary_unary(f"/{NAME}/ServerReady")(b"", timeout=TIMEOUT_S)
                HealthStub(channel).Check(HealthCheckRequest(), timeout=TIMEOUT_S)
            self.answers += 1
        except grpc.RpcError as error:
            self.failures.append((error.code(), error.details()))
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)

    @contextmanager
    def asking(self) -> Iterator[None]:
        over = threading.Event()

        def ask_on() -> None:
            while not over.wait(0.02):
                self.ask()

        thread = threading.Thread(target=ask_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@pytest.fixture
def other(served: Served) -> Other:
    other = Other(served)
    other.ask()
    assert other.failures == []
    return other


@pytest.mark.slow
@pytest.mark.parametrize("address", [ELSEWHERE, "127.0.0.1"])
def test_silent_streams_block_no_other_client_and_have_a_deadline(port: int, other: Other, address: str) -> None:
    with Peer(port, source=address) as attacker:
        opened = (frame(HEADERS, END_HEADERS, stream, block(head("ModelInfer"))) for stream in range(1, 2001, 2))
        attacker.send(b"".join(opened))
        attacker.read_responses()
        for _ in range(5):
            other.ask()
        assert other.failures == []
        late = attacker.expect(HEADERS, 1, END_STREAM)
        assert literal("grpc-status", "4") in late.payload


def test_a_client_that_opens_and_resets_streams_is_disconnected_and_delays_no_other(
    served: Served, port: int, other: Other
) -> None:
    worker = served.data_plane()
    before = rss_bytes(worker)
    lost = 0
    with other.asking():
        until = time.monotonic() + 2
        while time.monotonic() < until:
            lost += _opened_and_reset(port, 20_000)
    assert other.failures == []
    assert other.answers > 0
    assert lost > 0
    assert rss_bytes(worker) - before < 100 << 20


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _opened_and_reset(port: int, count: int) -> bool:
    """Opens and resets `count` streams. Returns true if the server closed the connection before all of this was
    sent.
    """
    compressed = block(head("ServerMetadata"))
    with Peer(port, source=ELSEWHERE) as attacker:
        for first in range(0, count, 1000):
            streams = range(2 * first + 1, 2 * (first + 1000), 2)
            sent = b"".join(
                frame(HEADERS, END_HEADERS, stream, compressed) + frame(RST_STREAM, 0, stream, CANCEL.to_bytes(4))
                for stream in streams
            )
            try:
                attacker.socket.sendall(sent)
            except ConnectionError:
                return True
    return False


def test_announced_messages_occupy_no_memory(port: int, other: Other) -> None:
    with Peer(port, source=ELSEWHERE) as attacker:
        announced = b"\0" + (MAX_PREDICT_BYTES + HEAD_BYTES).to_bytes(4) + b"x"
        for stream in range(1, 401, 2):
            attacker.headers(stream, head("ModelInfer"))
            attacker.send(frame(DATA, 0, stream, announced))
        attacker.read_responses()
        for _ in range(5):
            other.ask()
        assert other.failures == []


def test_a_message_that_arrives_too_slowly_is_abandoned(port: int, other: Other) -> None:
    with Peer(port, source=ELSEWHERE) as attacker:
        attacker.headers(1, head("ModelInfer"))
        attacker.send(frame(DATA, 0, 1, b"\0" + (1 << 20).to_bytes(4)))
        until, over = time.monotonic() + GIVE_UP_S, list[Frame]()
        while not over and time.monotonic() < until:
            attacker.send(frame(DATA, 0, 1, b"x") + frame(PING, payload=bytes(8)))
            over = [each for each in attacker.read_responses() if (each.type, each.stream) == (HEADERS, 1)]
            time.sleep(0.1)
        assert literal("grpc-status", "4") in over[0].payload
    other.ask()
    assert other.failures == []


@pytest.mark.slow
def test_one_address_cannot_use_all_connections(tmp_path: Path) -> None:
    with serving(tmp_path, max_connections=40) as served:
        assert served.ended(served.push()["id"])["state"] == "succeeded"
        url = urlsplit(served.url)
        assert url.hostname is not None
        assert url.port is not None
        silent = [
            socket.create_connection((url.hostname, url.port), GIVE_UP_S, source_address=(ELSEWHERE, 0))
            for _ in range(60)
        ]
        try:
            eventually(lambda: sum(map(_is_open, silent)) <= 30)  # the others are for probes, and end soon
            assert served.client.get("/v2/health/ready").status_code == 200
            assert served.label(5) == 5
            other = Other(served)
            other.ask()
            assert other.failures == []
        finally:
            for each in silent:
                each.close()


def _is_open(connection: socket.socket) -> bool:
    """Returns true if the connection is open and has not received anything."""
    connection.settimeout(0.1)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False


def test_responses_to_a_slow_reader_are_not_mixed_up(served: Served) -> None:
    """The last request of each client is a prediction, so the data plane answers it. The control plane answers the
    earlier requests.
    """
    url = urlsplit(served.url)
    body, headers = as_binary(
        {"image": np.zeros((1, 16, 16, 1), np.int8)}, {"parameters": {"binary_data_output": True}}
    )
    lines = [f"{name}: {value}" for name, value in {"Host": url.netloc, "Content-Length": len(body), **headers}.items()]
    predict = "\r\n".join(["POST /v2/models/digits/infer HTTP/1.1", *lines, "", ""]).encode() + body
    large, small = (f"GET {path} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode() for path in _PAGES)
    (scores,) = _answers(url, predict)
    (document,) = _answers(url, large)
    for count in range(1, 5):
        got = _answers(url, *[large] * _FILLING, *[small] * count, predict)
        assert got[:_FILLING] == [document] * _FILLING
        assert got[-1] == scores


def _answers(url: Any, *requests: bytes) -> list[bytes]:
    """Returns the bodies of the responses. It reads them only after the server cannot write any more."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(GIVE_UP_S)
        client.connect((url.hostname, url.port))
        for request in requests:
            client.sendall(request)
            time.sleep(0.03)
        time.sleep(0.2)
        with client.makefile("rb") as stream:
            return [_body(stream) for _ in requests]


def _body(stream: Any) -> bytes:
    assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
    lines = dict(line.lower().split(b":", 1) for line in iter(stream.readline, b"\r\n"))
    body: bytes = stream.read(int(lines[b"content-length"]))
    return body
