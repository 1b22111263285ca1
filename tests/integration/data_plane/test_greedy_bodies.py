"""Unfinished bodies: one address may have a limited amount in progress, while another address is still served."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.plane_models import WIDE, bare_plane, wide
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S, eventually

TOTAL, PIECE = 16 << 20, 1 << 20
ELSEWHERE = "127.0.0.2"  # another address of this machine, from which a client may connect
HEAD = b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("greedy")
    peers = {"max_connections": 1000, "max_calls": 1000, "max_message_bytes": TOTAL, "share": 0.75}
    with bare_plane(folder, [wide(folder, 1)], peers=peers) as process:
        yield process


def half_sent(served: PlaneProcess, framing: bytes, piece: bytes) -> socket.socket:
    """Returns a connection on which part of a body was sent."""
    address = urlsplit(served.url)
    connection = socket.create_connection((address.hostname, address.port), 10)
    connection.sendall(HEAD % framing + piece)
    return connection


def refusal(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16)
    except BlockingIOError:
        return b""


def polite() -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(local_address=ELSEWHERE), timeout=GIVE_UP_S)


def request() -> dict[str, object]:
    return {"inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, WIDE], "data": [7] * WIDE}]}


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        (b"Content-Length: %d" % (2 * PIECE), b" " * PIECE),
        (b"Transfer-Encoding: chunked", b"%x\r\n" % PIECE + b" " * PIECE),
    ],
    ids=["length", "chunks"],
)
def test_half_sent_bodies_of_one_address_leave_room_for_others(
    served: PlaneProcess, framing: bytes, piece: bytes
) -> None:
    with ExitStack() as greedy, polite() as client:
        refused: list[bytes] = []
        connections = [greedy.enter_context(half_sent(served, framing, piece)) for _ in range(2 * TOTAL // PIECE)]
        for _ in range(10):
            answer = client.post(f"{served.url}/v2/models/wide/infer", json=request())
            assert answer.status_code == 200, answer.text

        def are_many_refused() -> bool:
            refused.extend(filter(None, map(refusal, connections)))
            return len(refused) >= TOTAL // PIECE

        eventually(are_many_refused)
        assert all(b"503 Service Unavailable" in each and b"memory_full" in each for each in refused)
        assert client.post(f"{served.url}/v2/models/wide/infer", json=request()).status_code == 200
    _has_room(served)


def test_an_idle_connection_keeps_nothing_of_its_last_request(served: PlaneProcess) -> None:
    """The client has read the response, so the request's body is freed."""
    with ExitStack() as idle:
        for _ in range(8):
            client = idle.enter_context(httpx.Client())
            refused = client.post(f"{served.url}/v2/models/wide/infer", content=b" " * (2 * PIECE))
            assert refused.status_code == 413
        _has_room(served)


def _has_room(served: PlaneProcess) -> None:
    """Waits until a body of half the limit is accepted. The server accepts it after the next check of connections."""

    def is_taken() -> bool:
        answer = httpx.post(f"{served.url}/v2/models/wide/infer", content=b" " * (TOTAL // 2))
        if answer.status_code != 413:  # the body was received, but it is not JSON for this model
            time.sleep(0.05)
        return answer.status_code == 413

    eventually(is_taken)
