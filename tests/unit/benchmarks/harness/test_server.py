import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from benchmarks.harness.server import HttpCall, Server, header

CORE = min(os.sched_getaffinity(0))


@contextmanager
def answering(*pieces: bytes) -> Iterator[tuple[Server, list[bytes]]]:
    """Runs a server that answers one request with `pieces`, one segment each. Yields it and the bytes received."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                received.append(connection.recv(1 << 16))
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=answer)
        thread.start()
        yield Server("127.0.0.1", listener.getsockname()[1], os.getpid()), received
        thread.join()


def test_a_response_in_pieces_is_read_to_its_length() -> None:
    pieces = b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\nX: y\r\n", b"\r\nab", b"cde"
    with (
        answering(*pieces) as (server, received),
        closing(HttpCall(server, "POST", "/p", {"A": "b"}, b"xyz", CORE)) as call,
    ):
        head, body = call()
    assert body == b"abcde"
    assert header(head, b"x") == b"y"
    assert received[0].startswith(b"POST /p HTTP/1.1\r\n")
    assert received[0].endswith(b"Content-Length: 3\r\nA: b\r\n\r\nxyz")


def test_a_response_with_an_error_status_is_not_timed() -> None:
    pieces = (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",)
    with (
        answering(*pieces) as (server, _),
        closing(HttpCall(server, "GET", "/", {}, b"", CORE)) as call,
        pytest.raises(RuntimeError, match=r"404 Not Found(?s:.*)gone"),
    ):
        call()


def test_a_connection_that_is_cut_is_an_error() -> None:
    pieces = (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",)
    with (
        answering(*pieces) as (server, _),
        closing(HttpCall(server, "GET", "/", {}, b"", CORE)) as call,
        pytest.raises(RuntimeError, match="closed the connection"),
    ):
        call()


def test_a_missing_header_is_empty() -> None:
    assert header(b"HTTP/1.1 200 OK\r\nA: b\r\n", b"c") == b""
