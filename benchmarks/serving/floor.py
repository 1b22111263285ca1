"""The least that a request over TCP can cost: a blocking socket that takes bytes and gives bytes, on the server's core.

python -m benchmarks.serving.floor CORE REQUEST_BYTES RESPONSE_BYTES    # prints its port
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.measure import call_repeatedly
from benchmarks.places import CHECKOUT


def main() -> None:
    core, request_bytes, response_bytes = map(int, sys.argv[1:])
    os.sched_setaffinity(0, {core})
    buffer, response = bytearray(request_bytes), bytes(response_bytes)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while receive_all(connection, memoryview(buffer)):
            connection.sendall(response)


def receive_all(connection: socket.socket, buffer: memoryview) -> bool:
    """Whether the buffer was filled before the other side closed."""
    while buffer:
        count = connection.recv_into(buffer)
        if not count:
            return False
        buffer = buffer[count:]
    return True


class FloorCall:
    """One exchange of those sizes; a `measure.Timed`."""

    def __init__(self, port: int, pid: int, request_bytes: int, response_bytes: int) -> None:
        self._request, self._response = bytes(request_bytes), bytearray(response_bytes)
        self._pid = pid
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def pids(self) -> Sequence[int]:
        return [self._pid]

    def __call__(self) -> None:
        self._socket.sendall(self._request)
        receive_all(self._socket, memoryview(self._response))

    def durations_s(self, seconds: float) -> list[float]:
        return call_repeatedly(self, seconds)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def floor(core: int, request_bytes: int, response_bytes: int) -> Iterator[FloorCall]:
    command = [sys.executable, "-m", "benchmarks.serving.floor", str(core), str(request_bytes), str(response_bytes)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE) as process:
        assert process.stdout
        call = FloorCall(int(process.stdout.readline()), process.pid, request_bytes, response_bytes)
        try:
            yield call
        finally:
            call.close()


if __name__ == "__main__":
    main()
