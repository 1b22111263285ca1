"""Requests that the data plane forwards to a control plane."""

from __future__ import annotations

import socket
from pathlib import Path

from service.workers.data_plane import orders
from service.workers.data_plane.frames import frame
from tests.support.plane_process import ControlledPlane
from tests.support.waiting import GIVE_UP_S

REQUEST = b"POST /api/v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
ANSWER = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_an_upstream_that_stops_reading_a_request_still_answers_it(tmp_path: Path) -> None:
    configured = {"type": "configure", "host": "127.0.0.1", "is_particular": False, "not_ready": ""}
    with ControlledPlane(tmp_path, frame(configured) + frame(orders.keys(is_required=False))) as plane:
        plane.hear("hello")
        with socket.create_connection(plane.http, GIVE_UP_S) as client:
            client.sendall(REQUEST)
            plane.hear("connection")
            upstream = plane.connections[0]
            assert upstream.recv(1 << 16).startswith(b"POST /api/v1/models HTTP/1.1\r\n")
            upstream.shutdown(socket.SHUT_RD)  # after this, sending to it fails
            client.sendall(bytes(500_000))
            # keeps the number of a descriptor that is in use from being assigned again
            with socket.create_connection(plane.http, GIVE_UP_S) as other:
                other.sendall(LIVE)
                assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")
                client.sendall(bytes(500_000))
                upstream.sendall(ANSWER)
                assert client.recv(len(ANSWER)) == ANSWER
                upstream.sendall(b"far")
                assert client.recv(3) == b"far"
                other.sendall(LIVE)
                assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")


EVENTS = b"data: 1\n\ndata: 2\n\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"
)


def forwarded(folder: Path, request: bytes, answer: bytes) -> bytes:
    """Forwards a request and returns everything that the client receives, until the last chunk or the end."""
    configured = {"type": "configure", "host": "127.0.0.1", "is_particular": False, "not_ready": ""}
    with ControlledPlane(folder, frame(configured) + frame(orders.keys(is_required=False))) as plane:
        plane.hear("hello")
        with socket.create_connection(plane.http, GIVE_UP_S) as client:
            client.sendall(request)
            plane.hear("connection")
            plane.connections[0].recv(1 << 16)
            for at in range(0, len(answer), 7):  # in pieces, like a response that arrives over time
                plane.connections[0].sendall(answer[at : at + 7])
            plane.connections[0].close()
            received = b""
            # The client must not close its sending half, because the data plane treats a half-closed connection as
            # closed.
            while not received.endswith(b"0\r\n\r\n") and (part := client.recv(1 << 16)):
                received += part
            return received


def test_a_client_of_http_1_0_gets_events_without_chunks(tmp_path: Path) -> None:
    for number, keep in enumerate((b"", b"Connection: keep-alive\r\n")):
        (tmp_path / str(number)).mkdir()
        request = b"GET /api/v1/builds/1/events HTTP/1.0\r\nHost: localhost\r\n" + keep + b"\r\n"
        head, body = forwarded(tmp_path / str(number), request, CHUNKED).split(b"\r\n\r\n", 1)
        assert body == EVENTS
        assert b"connection: close" in head
        assert b"transfer-encoding" not in head


def test_a_client_of_http_1_1_gets_them_in_chunks(tmp_path: Path) -> None:
    request = b"GET /api/v1/builds/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head, body = forwarded(tmp_path, request, CHUNKED).split(b"\r\n\r\n", 1)
    assert body == CHUNKED.split(b"\r\n\r\n", 1)[1]
    assert b"transfer-encoding: chunked" in head


def test_an_http_1_0_client_is_informed_that_its_connection_stays_open(tmp_path: Path) -> None:
    request = b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    configured = {"type": "configure", "host": "127.0.0.1", "is_particular": False, "not_ready": ""}
    with (
        ControlledPlane(tmp_path, frame(configured) + frame(orders.keys(is_required=False))) as plane,
        socket.create_connection(plane.http, GIVE_UP_S) as client,
    ):
        for _ in range(2):
            client.sendall(request)
            assert b"\r\nconnection: keep-alive\r\n" in client.recv(1 << 16)
        client.sendall(request.replace(b"keep-alive", b"x"))
        assert b"\r\nconnection: close\r\n" in client.recv(1 << 16)
