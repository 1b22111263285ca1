"""Requests that the data plane sends on to a control plane."""

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


def test_an_upstream_that_takes_no_more_of_a_request_still_answers_it(tmp_path: Path) -> None:
    configured = {"type": "configure", "host": "127.0.0.1", "is_particular": False, "not_ready": ""}
    with ControlledPlane(tmp_path, frame(configured) + frame(orders.keys(is_asked=False))) as plane:
        plane.hear("hello")
        with socket.create_connection(plane.http, GIVE_UP_S) as client:
            client.sendall(REQUEST)
            plane.hear("connection")
            upstream = plane.connections[0]
            assert upstream.recv(1 << 16).startswith(b"POST /api/v1/models HTTP/1.1\r\n")
            upstream.shutdown(socket.SHUT_RD)  # what is sent to it fails from now on
            client.sendall(bytes(500_000))
            with socket.create_connection(plane.http, GIVE_UP_S) as other:  # which gets no number that is in use
                other.sendall(LIVE)
                assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")
                client.sendall(bytes(500_000))
                upstream.sendall(ANSWER)
                assert client.recv(len(ANSWER)) == ANSWER
                upstream.sendall(b"far")
                assert client.recv(3) == b"far"
                other.sendall(LIVE)
                assert other.recv(1 << 16).startswith(b"HTTP/1.1 200")
