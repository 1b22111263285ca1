"""Workers that send invalid responses to a router."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from service.workers.data_plane import orders
from tests.support.routed import KEY, Cluster, cluster, request, vector
from tests.support.waiting import GIVE_UP_S

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


class Rogue:
    """A worker that passes the head of each request to `answer` and sends the result. If the result is None, it closes
    the connection.

    Attributes:
        heads: the heads of the requests that it received.
    """

    def __init__(self, answer: Callable[[int, bytes], bytes | None]) -> None:
        self._answer = answer
        self.heads: list[bytes] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        data = b""
        with connection, suppress(OSError):
            while True:
                while b"\r\n\r\n" not in data:
                    if not (piece := connection.recv(1 << 16)):
                        return
                    data += piece
                head, _, data = data.partition(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                assert length
                while len(data) < int(length[1]):
                    data += connection.recv(1 << 16)
                data = data[int(length[1]) :]
                self.heads.append(head)
                hop = re.search(rb"octet-hop-id: (\d+)", head)
                assert hop
                answer = self._answer(int(hop[1]), head)
                if answer is None:
                    return
                connection.sendall(answer)


def whole(hop: int, body: bytes = b'{"x":1}', head: bytes = b"") -> bytes:
    return OK + b"octet-hop-id: %d\r\ncontent-length: %d\r\n" % (hop, len(body)) + head + b"\r\n" + body


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, stall_timeout_s=1.5) as made:
        yield made


def served_by(routed: Cluster, answer: Callable[[int, bytes], bytes | None]) -> Rogue:
    rogue = Rogue(answer)
    routed.places["r"] = rogue.port
    routed.say(orders.workers(KEY, [orders.Worker("r", "p", 1, "ready", [("echo", "")])], ()))
    routed.gather()
    return rogue


def infer(routed: Cluster) -> httpx.Response:
    return httpx.post(f"{routed.url}/v2/models/echo/infer", content=request(vector(1)), timeout=GIVE_UP_S)


NO_ANSWERS: dict[str, Callable[[int, bytes], bytes | None]] = {
    "nothing": lambda hop, head: None,
    "silence": lambda hop, head: b"",
    "noise": lambda hop, head: b"\x00\xff" * 100,
    "a request": lambda hop, head: b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "half a head": lambda hop, head: OK,
    "a long head": lambda hop, head: OK + b"x: " + b"y" * (1 << 17) + b"\r\n\r\n",
    "many headers": lambda hop, head: whole(hop, head=b"x: y\r\n" * 200),
    "no length": lambda hop, head: OK + b"octet-hop-id: %d\r\n\r\n{}" % hop,
    "two lengths": lambda hop, head: whole(hop, head=b"content-length: 3\r\n"),
    "a length and chunks": lambda hop, head: whole(hop, head=b"transfer-encoding: chunked\r\n"),
    "chunks": lambda hop, head: (
        OK + b"octet-hop-id: %d\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" % hop
    ),
    "no hop": lambda hop, head: OK + b"content-length: 2\r\n\r\n{}",
    "another's hop": lambda hop, head: whole(hop - 1),
    "an interim response": lambda hop, head: b"HTTP/1.1 100 Continue\r\n\r\n" + whole(hop),
    "HTTP/1.0": lambda hop, head: whole(hop).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a bare line feed": lambda hop, head: whole(hop).replace(b"\r\n", b"\n"),
}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answer, id=name, marks=[pytest.mark.slow] * (name == "silence"))
        for name, answer in NO_ANSWERS.items()
    ],
)
def test_an_invalid_response_counts_as_a_lost_worker(
    routed: Cluster, answer: Callable[[int, bytes], bytes | None]
) -> None:
    rogue = served_by(routed, answer)
    for _ in range(1 if answer is NO_ANSWERS["silence"] else 2):
        response = infer(routed)
        assert (response.status_code, response.json()["code"]) == (503, "restarting")
    rogue.close()


def test_bytes_after_a_response_are_discarded(routed: Cluster) -> None:
    rogue = served_by(routed, lambda hop, head: whole(hop) + whole(hop + 1, b'{"x":2}'))
    for _ in range(4):
        assert infer(routed).json() == {"x": 1}
    assert rogue.connections >= 4  # no connection was reused
    rogue.close()


def test_unexpected_bytes_end_an_idle_connection(routed: Cluster) -> None:
    rogue = served_by(routed, lambda hop, head: whole(hop))
    connections: list[int] = []
    for _ in range(3):
        assert infer(routed).json() == {"x": 1}
        connections.append(rogue.connections)
    assert connections[0] == connections[-1]  # connections are reused
    rogue.close()


def test_a_truncated_response_ends_the_clients_connection(routed: Cluster) -> None:
    rogue = served_by(routed, lambda hop, head: whole(hop)[:-3])
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        infer(routed)
    rogue.close()


def test_unknown_headers_of_a_worker_are_dropped(routed: Cluster) -> None:
    extra = b"set-cookie: a=b\r\nstrict-transport-security: max-age=1\r\n"
    extra += b"x-request-id: other\r\nserver-timing: total;dur=1\r\n"
    rogue = served_by(routed, lambda hop, head: whole(hop, head=extra))
    answer = infer(routed)
    assert answer.headers["server-timing"] == "total;dur=1"
    assert not {"set-cookie", "strict-transport-security"} & set(answer.headers)
    assert answer.headers["x-request-id"] != "other"
    assert f"octet-cluster-key: {KEY}".encode() in rogue.heads[0]
    rogue.close()


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request", b"599 Odd"])
def test_an_invalid_message_is_an_error_of_its_call(routed: Cluster, status: bytes) -> None:
    rogue = served_by(routed, lambda hop, head: whole(hop, b"\xff" * 9).replace(b"200 OK", status))
    sent = triton.InferInput("x", [1, 16], "UINT8")
    sent.set_data_from_numpy(vector(1))
    with triton.InferenceServerClient(routed.grpc) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer("echo", [sent])
        assert status == b"200 OK" or caught.value.status() == "StatusCode.INTERNAL"
        assert client.is_server_live()
    rogue.close()
