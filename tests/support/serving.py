"""Starts `octet serve` as a process that tests may kill."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from service.cli.events import Event, parse_events
from service.core.builds.build import BuildState
from tests.support.build_caches import share_caches
from tests.support.compiled import EXAMPLES
from tests.support.databases import place_database
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually

INT8, UINT8 = "digits_int8.tflite", "digits_uint8.tflite"
# All CI machines of this project can run the first target. The others are for additional builds of the same file.
RUNS_HERE, OTHERS = "x86-64-v3", ("aarch64", "aarch64+dotprod", "x86-64-v4")
# The head of a request whose route reads the body without looking at its content.
UPLOAD = b"PUT /api/v1/blobs/sha256:" + b"0" * 64 + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
_WAIT = {"Prefer": "wait=60"}  # the longest time that a server waits


class Served:
    """A running server and a client of it."""

    def __init__(
        self, process: subprocess.Popen[str], url: str, grpc: str | None = None, trusted: Path | None = None
    ) -> None:
        self.process, self.url, self.grpc = process, url, grpc
        verify = ssl.create_default_context(cafile=trusted and str(trusted))
        self.client = httpx.Client(base_url=url, timeout=WORK_TIMEOUT_S, trust_env=False, verify=verify)

    def push(self, file: str = INT8, name: str = "digits", **query: Any) -> dict[str, Any]:
        """Pushes a sample model, and returns the build in the response."""
        response = self.client.put("/api/v1/models", params={"name": name, **query}, content=model(file))
        assert response.status_code in (200, 202), response.text
        build: dict[str, Any] = response.json()
        return build

    def build(self, id: str) -> dict[str, Any]:
        build: dict[str, Any] = self.client.get(f"/api/v1/builds/{id}").json()
        return build

    def ended(self, id: str) -> dict[str, Any]:
        """Waits until the build has ended, and returns it."""
        build: dict[str, Any] = {}

        def is_over() -> bool:
            build.update(self.client.get(f"/api/v1/builds/{id}", headers=_WAIT).json())
            return BuildState(build["state"]).is_final

        eventually(is_over, WORK_TIMEOUT_S)
        return build

    def events(self, id: str) -> Iterator[Event]:
        with self.client.stream("GET", f"/api/v1/builds/{id}/events") as response:
            yield from parse_events(response.iter_lines())

    def reaches(self, id: str, stage: str) -> None:
        """Waits until the build is in `stage`."""
        for event in self.events(id):
            if event.kind == "stage" and event.data["stage"] == stage:
                return
        raise AssertionError(f"the build ended without {stage}: {self.build(id)}")

    def label(self, digit: int, model: str = "digits") -> int:
        """Sends the picture of a digit to the model, and returns the digit with the highest score."""
        response = self.client.post(
            f"/v2/models/{model}/infer",
            content=(EXAMPLES / "digits" / f"{digit}.png").read_bytes(),
            headers={"Content-Type": "image/png"},
        )
        assert response.status_code == 200, response.text
        scores: list[int] = response.json()["outputs"][0]["data"]
        return scores.index(max(scores))

    def data_plane(self) -> int:
        """Returns the process id of the child that owns the ports."""
        return self._child("octet-plane")

    def control_plane(self) -> int:
        """Returns the process id of the control plane, which is the child that handles forwarded requests."""
        return self._child("control-plane")

    def preprocessor(self) -> int:
        """Returns the process id of the process that decodes pictures. It runs once a picture was sent."""
        return self._child("preprocessor", self._child("preprocessor"))

    def _child(self, name: str, parent: int = 0) -> int:
        """Waits for a child and returns its process id. The wait is needed because restarting a dead child takes a
        moment.
        """
        parent = parent or self.process.pid
        found = list[int]()

        def is_there() -> bool:
            found.extend(pid for pid in children_of(parent) if _name_of(pid).startswith(name))
            return bool(found)

        eventually(is_there)
        return found[0]

    def compile_worker(self) -> int:
        """Returns the process id of the compile worker with the latest heartbeat."""
        found: list[tuple[str, int]] = []

        def is_known() -> bool:
            workers = self.client.get("/api/v1/workers").json()["workers"]
            found.extend((w["started_at"], int(w["pid"])) for w in workers if w["kind"] == "compile")
            return bool(found)

        eventually(is_known)
        return max(found)[1]

    def compiler_children(self) -> list[int]:
        """Returns the process ids of a build's children, except the zygote from which they are forked."""
        return [pid for pid in children_of(self.compile_worker()) if not _is_zygote(pid)]

    def kill(self) -> None:
        """Kills the server like `kill -9` or a power failure."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ends the server with SIGTERM, as a supervisor does, and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WORK_TIMEOUT_S)


@contextmanager
def serving(data_dir: Path, log: Any = None, **settings: Any) -> Iterator[Served]:
    """Starts a server on a free port. If it still runs at the end, kills it.

    Args:
        log: the file to which it logs; by default the standard error of this process.
    """
    if not (data_dir / "data").exists():  # otherwise, the server restores its tables from the store
        place_database(data_dir / "data" / "octet.sqlite3")
    share_caches(data_dir / "data")
    with subprocess.Popen(
        command(data_dir), env=environment(**settings), stdout=subprocess.PIPE, stderr=log, text=True, cwd=data_dir
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "the server ended while it started"
            started = json.loads(line)
            served = Served(process, started["url"], started["grpc"], settings.get("tls_cert"))
            with served.client:
                yield served
        finally:
            process.kill()


def connect(served: Served) -> socket.socket:
    """Returns a new connection to the server. Nothing was sent on it yet."""
    url = urlsplit(served.url)
    return socket.create_connection((url.hostname, url.port), timeout=GIVE_UP_S)


def command(data_dir: Path, port: int = 0) -> list[str]:
    program = [sys.executable, "-m", "service.cli", "serve", "--verbose", "--json"]
    return [*program, "--data-dir", str(data_dir / "data"), "--port", str(port)]


def environment(**settings: Any) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OCTET_", "TVM_"))}
    own = {"build_nice": 0, **settings}  # see tests/conftest.py
    return inherited | {f"OCTET_{name.upper()}": str(value) for name, value in own.items()}


def model(file: str) -> bytes:
    return (EXAMPLES / file).read_bytes()


def _is_zygote(pid: int) -> bool:
    """Returns true if a process is the zygote. Its forks have the same command line, but a different working
    directory.
    """
    try:
        command, position = Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/cwd").readlink()
    except FileNotFoundError:
        return False
    return b"service.compiler.children.zygote" in command and position == Path("/")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
