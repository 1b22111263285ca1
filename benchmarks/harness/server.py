"""The benchmark's own `octet serve`, and a minimal HTTP client for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.harness.link import Link, Waiting
from benchmarks.harness.machine import free_port, terminate
from benchmarks.harness.turns import time_warm_calls
from benchmarks.harness.wire import request_bytes

_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 20.0


@dataclass(frozen=True)
class Server:
    """A server that is ready."""

    host: str
    port: int
    pid: int
    grpc_port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"


@contextmanager
def serving(
    data_dir: Path, cores: Sequence[int], log: Path, *flags: str, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Runs `octet serve` with as many threads per prediction as it has cores, and with further `flags` and `settings`.

    Raises:
        RuntimeError: the server ended, or was not ready in time.
    """
    host, port, grpc_port = "127.0.0.1", free_port(), free_port()
    command = [sys.executable, "-m", "service.cli", "serve", "--host", host, "--port", str(port)]
    command += ["--grpc-port", str(grpc_port), *flags]
    environment = (
        os.environ | {"OCTET_DATA_DIR": str(data_dir), "OCTET_THREADS": str(len(cores))} | dict(settings or {})
    )
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),  # before it has threads, so that all of them inherit it
        )
    server = Server(host, port, process.pid, grpc_port, "https" if "--tls-cert" in flags else "http")
    try:
        _await(server, process, log)
        yield server
    finally:
        terminate(process, _STOP_LIMIT_S)


def _await(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while not _is_ready(server):
        if process.poll() is not None:
            raise RuntimeError(f"octet serve ended with {process.returncode}:\n{log.read_text()}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"octet serve was not ready after {_START_LIMIT_S:.0f} s:\n{log.read_text()}")
        time.sleep(0.05)


def _is_ready(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/v2/health/ready", trust_env=False, verify=False).is_success
    except httpx.TransportError:
        return False


class HttpCall:
    """Sends the same request again and again over one connection, from a thread on `core`. Implements `turns.Timed`.

    The request is built beforehand, and only the length of the response is parsed, so that the client's own work does
    not affect the figure. One call lasts from the first byte sent to the last one received.
    """

    def __init__(
        self,
        server: Server,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        core: int,
        waiting: Waiting = Waiting.BLOCKING,
    ) -> None:
        self.request = request_bytes(server.host, server.port, path, headers, body, method)
        self._server = server
        self._core = core
        self._link = Link(server.host, server.port, waiting)

    @property
    def pids(self) -> Sequence[int]:
        return [self._server.pid]

    def close(self) -> None:
        self._link.close()

    def durations_s(self, seconds: float) -> list[float]:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self._core})
        try:
            return time_warm_calls(self, seconds)
        finally:
            os.sched_setaffinity(0, before)

    def __call__(self) -> tuple[bytes, bytes]:
        """Returns the response's head and body. Raises RuntimeError if the status is not 200."""
        self._link.send(self.request)
        received = self._link.receive()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._link.receive()
        head, body = received[: end + 2], received[end + 4 :]
        length = int(header(head, b"content-length"))
        while len(body) < length:
            body += self._link.receive()
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{head.decode()}\n{body.decode(errors='replace')}")
        return head, body


def header(head: bytes, name: bytes) -> bytes:
    """Returns the value of a header in a response's head; empty if it is missing."""
    _, _, after = head.lower().partition(b"\r\n" + name + b":")
    return after.partition(b"\r\n")[0].strip()
