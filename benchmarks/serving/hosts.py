"""Servers that are ready for load: an Octet server with one model, and the peers."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.harness.home import CHECKOUT, Home
from benchmarks.harness.machine import end_with_parent, free_port, send_signal, tree
from benchmarks.harness.predictions import binary_request, infer_path, input_names
from benchmarks.harness.server import Server, serving
from benchmarks.harness.wire import LOST, ask, request_bytes
from benchmarks.serving.clients.load import OK, Load, Phase
from benchmarks.serving.contestants import OCTET, Peer
from service.cli.client import Client
from service.core.models.arrays import Array

HOST = "127.0.0.1"
V2 = "v2 REST, binary tensors both ways"
_ANSWER_S = 10.0
_PAUSE_S = 0.2
_LEAST_VALUES = 8  # the scores of a thousand classes contain at least so many different bytes


class HostFailed(RuntimeError):
    """A server did not start, or does not respond."""


@dataclass(frozen=True)
class Host:
    """A server that is ready.

    Attributes:
        request, answer: files with the bytes of the request, and with the expected body of the response.
        encoding: the encoding of the body.
    """

    name: str
    pid: int
    port: int
    request: Path
    answer: Path
    encoding: str

    def load(self, *phases: Phase) -> Load:
        """Returns an open loop of these phases."""
        return Load(HOST, self.port, str(self.request), str(self.answer), phases=list(phases))

    def sleep(self) -> None:
        """Stops the server until `wake`, so that it takes no time from the others."""
        send_signal(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        send_signal(self.pid, signal.SIGCONT)


@contextmanager
def octet(data_dir: Path, model: str, image: Array, core: int, scratch: Path) -> Iterator[tuple[Host, Server]]:
    """Runs `octet serve --no-compile`, as in a deployment with a separate compile worker."""
    with serving(data_dir, [core], scratch / "octet.log", "--no-compile") as server:
        yield host_of(server, model, image, scratch), server


def host_of(server: Server, model: str, image: Array, scratch: Path) -> Host:
    """Returns a host for one loaded model of an Octet server. Raises HostFailed."""
    with Client(server.url) as client:
        request = _v2_request(server.port, model, input_names(client, model), image)
    host = _ready(OCTET, server.pid, server.port, request, scratch, V2, lambda: False)
    paths = scratch / f"{OCTET}-{model}.request", scratch / f"{OCTET}-{model}.answer"
    return replace(host, request=host.request.replace(paths[0]), answer=host.answer.replace(paths[1]))


class PeerProcess:
    """A peer that is starting; `ready` waits for it."""

    def __init__(self, home: Home, peer: Peer, model: Path, image: Array, core: int, scratch: Path) -> None:
        self._peer, self._scratch, self._port = peer, scratch, free_port()
        self._request, self._encoding = _request_of(peer, self._port, image)
        python, module = home.python(peer.environment), f"benchmarks.serving.peers.{peer.module}"
        folder = tempfile.mkdtemp(dir=scratch)  # a short path, because Ray puts sockets there
        self._started_s = time.monotonic()
        self.log = scratch / f"{peer.name}.log"

        def prepare() -> None:
            os.sched_setaffinity(0, {core})  # before it has threads, so that all of them inherit it
            end_with_parent()

        with self.log.open("ab") as output:
            try:
                self._process = subprocess.Popen(
                    [python, "-m", module, str(self._port), peer.framework, str(model), folder],
                    cwd=CHECKOUT,
                    env=_environment(python),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=prepare,
                )
            except OSError as error:
                raise HostFailed(f"{python}: {error.strerror}; run: python -m benchmarks.setup_peers") from error

    def ready(self, limit_s: float) -> Host:
        """Waits for the peer. Raises HostFailed."""
        ends = self._started_s + limit_s

        def may_wait() -> bool:
            if self._process.poll() is not None:
                raise HostFailed(f"it ended with {self._process.returncode}: {_last_line(self.log)}")
            return time.monotonic() < ends

        name, pid = self._peer.name, self._process.pid
        try:
            return _ready(name, pid, self._port, self._request, self._scratch, self._encoding, may_wait)
        except HostFailed as error:
            raise HostFailed(f"{error}; its log ends with: {_last_line(self.log)}") from error

    def close(self) -> None:
        """Ends all its processes; some peers leave their children running."""
        pids = tree(self._process.pid)
        for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0)):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)


def _request_of(peer: Peer, port: int, image: Array) -> tuple[bytes, str]:
    """Returns the request, and a description of its body."""
    if peer.speaks_v2:
        return _v2_request(port, "image", ["input"], image.view(np.uint8)), V2
    headers = {"Content-Type": "application/octet-stream"}
    return request_bytes(HOST, port, "/predict", headers, image.tobytes()), "raw binary both ways"


def _v2_request(port: int, model: str, names: Sequence[str], image: Array) -> bytes:
    body, headers = binary_request(names, [image])
    return request_bytes(HOST, port, infer_path(model), headers, body)


def _ready(
    name: str, pid: int, port: int, request: bytes, scratch: Path, encoding: str, may_wait: Callable[[], bool]
) -> Host:
    """Returns the host after its first response. Raises HostFailed if there is none, or the second one differs."""
    while (first := ask(HOST, port, request, _ANSWER_S)).status != OK:
        if first.status not in (LOST, 400, 404, 503) or not may_wait():
            raise HostFailed(f"{name} answers {first.status or 'nothing'}: {first.body[:200].decode(errors='replace')}")
        time.sleep(_PAUSE_S)
    if ask(HOST, port, request, _ANSWER_S).body != first.body:
        raise HostFailed(f"{name} gives different responses to the same request")
    if len(set(first.body)) < _LEAST_VALUES:
        raise HostFailed(f"the response of {name}, {len(first.body)} bytes, contains no scores")
    paths = scratch / f"{name}.request", scratch / f"{name}.answer"
    for path, data in zip(paths, (request, first.body), strict=True):
        path.write_bytes(data)
    return Host(name, pid, port, *paths, encoding)


def _environment(python: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return os.environ | own | {"PATH": f"{python.parent}:{os.environ['PATH']}"}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing"
