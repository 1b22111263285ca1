"""Tests of clients that sleep and of clients that poll until the response arrives."""

import os
import socket
import threading
import time

import pytest

from benchmarks.harness.link import Link, Waiting
from benchmarks.serving.clients.floor import floor


@pytest.mark.parametrize("waiting", Waiting)
def test_a_late_response_in_pieces_is_received(waiting: Waiting) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link("127.0.0.1", listener.getsockname()[1], waiting)
        theirs, _ = listener.accept()

        def answer() -> None:
            for piece in (b"one", b"two"):
                time.sleep(0.02)
                theirs.sendall(piece)
            theirs.close()

        thread = threading.Thread(target=answer)
        thread.start()
        received = b""
        while len(received) < 6:
            received += link.receive()
        with pytest.raises(RuntimeError, match="closed the connection"):
            link.receive()
        thread.join()
        link.close()
    assert received == b"onetwo"


@pytest.mark.parametrize("waiting", Waiting)
def test_the_floor_computes_for_the_requested_time(waiting: Waiting) -> None:
    with floor(min(os.sched_getaffinity(0)), 100_000, 5_000, 0.01, waiting) as call:
        assert min(call.durations_s(0.05)) >= 0.01
