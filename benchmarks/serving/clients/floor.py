"""The minimum cost of a request over TCP: a blocking socket that receives bytes, computes, and sends bytes.

python -m benchmarks.serving.clients.floor CORE REQUEST_BYTES RESPONSE_BYTES BUSY_S    # prints its port

It runs on the server's core, and computes for as long as the model's call would take. If it responded at once, the
client would still be awake, and the floor would be lower than any server can reach.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.harness.home import CHECKOUT
from benchmarks.harness.link import Link, Waiting
from benchmarks.harness.turns import time_warm_calls


def main() -> None:
    core, request_bytes, response_bytes = map(int, sys.argv[1:4])
    busy_s = float(sys.argv[4])
    os.sched_setaffinity(0, {core})
    buffer, response = bytearray(request_bytes), bytes(response_bytes)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while receive_all(connection, memoryview(buffer)):
            ends = time.perf_counter() + busy_s
            while time.perf_counter() < ends:
                pass
            connection.sendall(response)


def receive_all(connection: socket.socket, buffer: memoryview) -> bool:
    """Returns true if the buffer was filled before the other side closed."""
    while buffer:
        count = connection.recv_into(buffer)
        if not count:
            return False
        buffer = buffer[count:]
    return True


class FloorCall:
    """Exchanges messages of the given sizes with the floor's process. Implements `turns.Timed`."""

    def __init__(self, port: int, pid: int, request_bytes: int, response_bytes: int, waiting: Waiting) -> None:
        self._request, self._response_bytes = bytes(request_bytes), response_bytes
        self._pid, self._link = pid, Link("127.0.0.1", port, waiting)

    @property
    def pids(self) -> Sequence[int]:
        return [self._pid]

    def __call__(self) -> None:
        self._link.send(self._request)
        missing = self._response_bytes
        while missing:
            missing -= len(self._link.receive())

    def durations_s(self, seconds: float) -> list[float]:
        return time_warm_calls(self, seconds)

    def close(self) -> None:
        self._link.close()


@contextmanager
def floor(core: int, request_bytes: int, response_bytes: int, busy_s: float, waiting: Waiting) -> Iterator[FloorCall]:
    numbers = map(str, (core, request_bytes, response_bytes, busy_s))
    command = [sys.executable, "-m", "benchmarks.serving.clients.floor", *numbers]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE) as process:
        assert process.stdout
        call = FloorCall(int(process.stdout.readline()), process.pid, request_bytes, response_bytes, waiting)
        try:
            yield call
        finally:
            call.close()


if __name__ == "__main__":
    main()
