"""A data plane is stopped while clients keep connections open. It answers the next request on each, and then closes
it.
"""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from service.core.digest import canonical_json
from tests.support import runners
from tests.support.plane_models import LENGTH, bare_plane, sleeping
from tests.support.routed import cluster, request, vector
from tests.support.waiting import GIVE_UP_S

SLEEPING = canonical_json(
    {"inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": [0] * LENGTH}]}
)
SOON_S = 0.3  # by then the signal was handled; idle connections are kept at least this long


@contextmanager
def persistent_connection(address: str) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(address, timeout=GIVE_UP_S)) as opened:
        opened.connect()
        yield opened


def ask(connection: http.client.HTTPConnection, model: str, body: bytes) -> tuple[int, str | None]:
    """Sends a request and returns the status and the `Connection` header of the response."""
    assert connection.sock is not None, "the connection was closed, and would be reopened"
    connection.request("POST", f"/v2/models/{model}/infer", body)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("connection")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Yields the address and the process, which must end with status 0."""
    with bare_plane(tmp_path, [sleeping(tmp_path, 1)]) as process:
        yield process.url.removeprefix("http://"), process.pid


def test_the_next_request_is_answered_as_the_last_one(plane: tuple[str, int]) -> None:
    address, pid = plane
    with (
        persistent_connection(address) as one,
        persistent_connection(address) as fresh,
        persistent_connection(address) as silent,
    ):
        assert ask(one, "sleeping", SLEEPING) == (200, None)
        assert ask(silent, "sleeping", SLEEPING) == (200, None)
        os.kill(pid, signal.SIGTERM)
        time.sleep(SOON_S)
        assert ask(one, "sleeping", SLEEPING) == (200, "close")
        assert ask(fresh, "sleeping", SLEEPING) == (200, "close")
        began_s = time.monotonic()
        assert silent.sock.recv(1) == b""  # an idle connection is closed without a response
        assert time.monotonic() - began_s < GIVE_UP_S


def test_a_connection_without_requests_is_closed_without_a_response(plane: tuple[str, int]) -> None:
    address, pid = plane
    with persistent_connection(address) as fresh:
        with persistent_connection(address) as behind:
            assert ask(behind, "sleeping", SLEEPING) == (200, None)  # connections are accepted in order
        os.kill(pid, signal.SIGTERM)
        assert fresh.sock.recv(1) == b""


def test_a_stopping_router_still_connects_to_its_workers(tmp_path: Path) -> None:
    with cluster(tmp_path) as routed:
        routed.worker({"echo": runners.identity("UINT8", 1, 16)})
        routed.tell()
        with persistent_connection(f"127.0.0.1:{routed.router.http}") as client:
            assert ask(client, "echo", request(vector(0))) == (200, None)
            routed.places[routed.workers[0].id] = 1  # the router can open no more connections
            routed.is_told_to_end = True
            routed.router.process.send_signal(signal.SIGTERM)
            time.sleep(SOON_S)
            assert ask(client, "echo", request(vector(1))) == (200, "close")
        assert routed.router.process.wait(GIVE_UP_S) == 0
