"""Cases that need a real socket: bodies that never end, clients that wait for 100-continue, and clients that
disconnect.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.data_plane import DataPlane, as_json, serving
from tests.support.runners import digits
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S

LIMIT_BYTES = 100_000
BODY = json.dumps(as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    tables = Tables()
    tables.model("digits", digits)
    with serving(DataPlane(tables, max_predict_bytes=LIMIT_BYTES)) as address:
        host, port = address.split(":")
        yield host, int(port)


@pytest.fixture
def connection(server: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(server, timeout=GIVE_UP_S) as connection:
        yield connection


def head(*headers: str, model: str = "digits") -> bytes:
    lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


def status(connection: socket.socket) -> int:
    """Reads the next response completely and returns its status."""
    file = connection.makefile("rb")
    code = int(file.readline().split()[1])
    length = 0
    while (line := file.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    assert len(file.read(length)) == length
    return code


def test_a_chunked_body_that_does_not_end_is_refused_while_it_arrives(connection: socket.socket) -> None:
    connection.sendall(head("Transfer-Encoding: chunked"))
    chunk = b"%x\r\n%s\r\n" % (10_000, b" " * 10_000)
    for _ in range(LIMIT_BYTES // 10_000 + 1):
        connection.sendall(chunk)
    assert status(connection) == 413


def test_a_chunked_body_is_accepted(connection: socket.socket) -> None:
    connection.sendall(head("Transfer-Encoding: chunked"))
    for start in range(0, len(BODY), 7):
        piece = BODY[start : start + 7]
        connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
    connection.sendall(b"0\r\n\r\n")
    assert status(connection) == 200


@pytest.mark.parametrize(
    ("length", "model", "expected"), [(LIMIT_BYTES + 1, "digits", 413), (1 << 59, "digits", 413), (10, "cats", 404)]
)
def test_a_client_that_expects_continue_is_refused_before_its_body(
    connection: socket.socket, length: int, model: str, expected: int
) -> None:
    connection.sendall(head(f"Content-Length: {length}", "Expect: 100-continue", model=model))
    assert status(connection) == expected


def test_a_client_that_expects_continue_gets_it(connection: socket.socket) -> None:
    connection.sendall(head(f"Content-Length: {len(BODY)}", "Expect: 100-continue"))
    assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    connection.sendall(BODY)
    assert status(connection) == 200


def test_clients_that_vanish_during_a_request_do_not_affect_others(
    server: tuple[str, int], connection: socket.socket
) -> None:
    for sent in (head("Content-Length: 50000"), head("Content-Length: 50000") + b"x" * 100, head()[:30]):
        with socket.create_connection(server) as other:
            other.sendall(sent)
    connection.sendall(head(f"Content-Length: {len(BODY)}") + BODY)
    assert status(connection) == 200


def test_a_refused_request_leaves_the_connection_usable(connection: socket.socket) -> None:
    connection.sendall(head("Content-Length: 2") + b"{}")
    assert status(connection) == 400
    connection.sendall(head(f"Content-Length: {len(BODY)}") + BODY)
    assert status(connection) == 200
