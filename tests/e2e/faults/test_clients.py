"""Tests of clients that are slow, half closed, numerous, or send invalid bytes, and of a server that is stopped during
requests.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.serving import UPLOAD, Served, children_of, connect, serving
from tests.support.waiting import GIVE_UP_S, eventually

TIMEOUT_S = 2.0  # long enough for a client that makes progress, even on a busy machine
HEAD = b"POST /v2/models/none/infer HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = {"head_timeout_s": TIMEOUT_S, "stall_timeout_s": TIMEOUT_S, "max_head_bytes": 20_000}
    with serving(tmp_path_factory.mktemp("clients"), **limits) as served:
        yield served
        assert served.client.get("/v2/health/ready").status_code == 200
        assert served.stop() == 0


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def answer(connection: socket.socket) -> bytes:
    """Returns what the server sends until it closes the connection."""
    received = b""
    try:
        while chunk := connection.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\n" + HEAD], ids=["nothing", "half a head", "a second one"])
def test_an_unfinished_head_is_cut_off(served: Served, sent: bytes) -> None:
    started_s = time.monotonic()
    with connect(served) as connection:
        connection.sendall(sent)
        assert b"408 Request Timeout" in answer(connection)
    assert time.monotonic() - started_s > TIMEOUT_S * 0.9


def test_a_head_that_arrives_byte_by_byte_is_cut_off_too(served: Served) -> None:
    with connect(served) as connection:
        connection.settimeout(TIMEOUT_S / 10)
        sent = 0
        received = b""
        for byte in HEAD * 10:
            try:
                connection.sendall(bytes([byte]))
                sent += 1
                received = connection.recv(1 << 16)
                break
            except TimeoutError:
                continue
            except OSError:
                break
        assert b"408" in received or sent < len(HEAD) * 10


def test_a_head_that_is_too_large_is_refused_while_it_arrives(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(HEAD)
        try:
            for _ in range(1000):
                connection.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")
        except OSError:
            pass  # the server stopped reading, so sending failed
        assert b"431 Request Header Fields Too Large" in answer(connection)


@pytest.mark.parametrize("drip", [b"", b"x"], ids=["stands still", "drips"])
def test_a_stalled_body_is_refused(served: Served, drip: bytes) -> None:
    with connect(served) as connection:
        connection.sendall(UPLOAD)
        over = threading.Event()

        def send() -> None:
            while drip and not over.wait(TIMEOUT_S / 10):
                try:
                    connection.sendall(drip)
                except OSError:
                    return

        sender = threading.Thread(target=send)
        sender.start()
        received = answer(connection)
        over.set()
        sender.join()
    assert received == b"" or b"408 Request Timeout" in received  # the response may be lost if the client still sends


def test_a_slow_body_is_accepted(served: Served) -> None:
    with connect(served) as connection:
        connection.sendall(UPLOAD)
        for _ in range(100):
            connection.sendall(b"x" * 1000)
            time.sleep(TIMEOUT_S / 60)
        # the server read the whole body: its error is that the digest does not match
        assert b" 400 " in connection.recv(1 << 16)


def test_a_half_closed_connection_counts_as_closed_and_leaves_nothing(served: Served) -> None:
    planes = served.data_plane(), served.control_plane()
    before = [descriptors(plane) for plane in planes]
    for sent in (b"", HEAD, UPLOAD + b"x" * 100):
        with connect(served) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer(connection)
    eventually(lambda: all(descriptors(plane) <= had for plane, had in zip(planes, before, strict=True)))


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # TLS
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhi",
        b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        os.urandom(1000),
    ],
)
def test_malformed_requests_are_refused(served: Served, nonsense: bytes) -> None:
    with connect(served) as connection:
        connection.sendall(nonsense)
        received = answer(connection)
        assert received == b"" or received.split()[1] in (b"400", b"404", b"408", b"505")


def test_malformed_requests_do_not_fill_the_log(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as log, serving(tmp_path, log=log) as served:
        for _ in range(200):
            with connect(served) as connection:
                connection.sendall(b"GET\r\n\r\n")
                assert b" 400 " in answer(connection)
        assert served.stop() == 0
        lines = (tmp_path / "log").read_text().splitlines()
    assert 1 <= len(lines) < 100


def test_the_server_is_still_alive(served: Served) -> None:
    assert served.client.get("/v2/health/ready").status_code == 200
    assert len(children_of(served.process.pid)) in (2, 3)  # a compile worker too, if something was built recently


@pytest.mark.slow
def test_ten_thousand_idle_connections(tmp_path: Path) -> None:
    count = 10_000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + 500:
        pytest.skip(f"this process may have {most} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with serving(tmp_path, head_timeout_s=600, max_connections=2 * count) as served:
        process = served.data_plane()
        before = rss_bytes(process)
        connections = []
        try:
            for _ in range(count):
                connections.append(connect(served))
            # All connections were accepted, not only queued: the server has a descriptor for each.
            eventually(lambda: descriptors(process) > count)
            each_bytes = (rss_bytes(process) - before) / count
            print(f"{each_bytes:.0f} bytes for each idle connection")
            assert each_bytes < 20_000
            times_s = []
            for _ in range(10):
                started_s = time.monotonic()
                ready = httpx.get(f"{served.url}/v2/health/ready", timeout=GIVE_UP_S, trust_env=False, verify=False)
                times_s.append(time.monotonic() - started_s)
                assert ready.status_code == 200
            assert min(times_s) < 1  # the machine may be busy with other things
        finally:
            for connection in connections:
                connection.close()
        assert served.stop() == 0


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def is_uploading(folder: Path) -> bool:
    return any((folder / "data" / "store").glob("uploads/*"))


def get(served: Served, path: str) -> httpx.Response | None:
    try:
        return httpx.get(served.url + path, timeout=GIVE_UP_S, trust_env=False, verify=False)
    except httpx.TransportError:
        return None


def is_stopping(served: Served) -> bool:
    ready = get(served, "/v2/health/ready")
    return ready is not None and ready.status_code == 503


class TestStopping:
    """SIGTERM during requests."""

    def test_requests_in_progress_end_and_others_are_asked_to_retry(self, tmp_path: Path) -> None:
        with serving(tmp_path, grace_s=600) as served, connect(served) as slow:
            slow.sendall(UPLOAD + b"x" * 50_000)
            eventually(lambda: is_uploading(tmp_path))
            served.process.send_signal(signal.SIGTERM)
            eventually(lambda: is_stopping(served))
            # A connection that was accepted just before the server closed the port is cut off. After that, the
            # supervisor responds.
            eventually(lambda: get(served, "/api/v1/models") is not None)
            refused = get(served, "/api/v1/models")
            assert refused is not None
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.json()["detail"] == "the server is stopping"
            live = get(served, "/v2/health/live")
            assert live is not None
            assert live.json() == {"live": True}
            slow.sendall(b"x" * 50_000)
            assert b" 400 " in slow.recv(1 << 16)  # the server read the request to its end
            assert served.process.wait(GIVE_UP_S) == 0

    def test_a_client_that_was_refused_before_its_body_does_not_delay_the_stop(self, tmp_path: Path) -> None:
        with serving(tmp_path, grace_s=600) as served:
            assert served.client.post("/v2/models/unknown/infer", json={"inputs": []}).status_code == 404
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(GIVE_UP_S) == 0

    @pytest.mark.slow
    def test_the_time_for_requests_in_progress_is_limited(self, tmp_path: Path) -> None:
        with serving(tmp_path, grace_s=1, stall_timeout_s=600) as served, connect(served) as slow:
            slow.sendall(UPLOAD)
            eventually(lambda: is_uploading(tmp_path))
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(GIVE_UP_S) == 0

    def test_a_second_signal_stops_at_once(self, tmp_path: Path) -> None:
        with serving(tmp_path, grace_s=600, stall_timeout_s=600) as served, connect(served) as slow:
            slow.sendall(UPLOAD)
            eventually(lambda: is_uploading(tmp_path))
            children = children_of(served.process.pid)
            served.process.send_signal(signal.SIGTERM)
            eventually(lambda: is_stopping(served))  # two signals that are pending at the same time count as one
            served.process.send_signal(signal.SIGTERM)
            assert served.process.wait(GIVE_UP_S) == 128 + signal.SIGTERM
            assert not any(Path(f"/proc/{child}").exists() for child in children)
