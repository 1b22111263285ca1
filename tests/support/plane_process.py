"""The data plane as a process. `octet worker serve` starts it, or a test acts as its control plane."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service.native import __file__ as native
from service.workers.data_plane.frames import Frames, frame

_PATIENCE_S = 60
_PROGRAM = Path(native).with_name("octet-plane")


@dataclass(frozen=True)
class PlaneProcess:
    """A data plane that answers requests."""

    url: str
    grpc: str
    pid: int

    def memory_kb(self) -> int:
        """Returns its proportional set size in kB: its private memory, and its share of the shared memory."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def plane(models: Sequence[str], **settings: str) -> Iterator[PlaneProcess]:
    """Serves `models`, each given as `NAME=DIR`, on free ports. `settings` are environment variables."""
    command = [sys.executable, "-m", "service.cli", "worker", "serve", *models, "--port=0", "--grpc-port=0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | settings)
    assert process.stdout is not None
    try:
        with process.stdout as stdout:
            addresses = json.loads(stdout.readline())
        trusted = settings.get("OCTET_TLS_CERT")
        verify = ssl.create_default_context(cafile=trusted) if trusted else False
        httpx.get(f"{addresses['url']}/v2/health/live", timeout=_PATIENCE_S, verify=verify).raise_for_status()
        yield PlaneProcess(addresses["url"], addresses["grpc"], process.pid)
        process.terminate()
        assert process.wait(_PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


class ControlledPlane:
    """A data plane whose control plane is this process. It receives only what the test sends.

    Attributes:
        http, grpc: the addresses of its ports.
        process: the data plane process.
        connections: the sockets that the data plane has passed to the control plane.
    """

    def __init__(self, folder: Path, first: bytes, program: Path | None = None) -> None:
        """Starts the data plane.

        Args:
            folder: the folder of its control socket. It is the only folder that the process may read.
            first: frames that it executes before it listens.
            program: the program; by default the product. One with a sanitizer keeps the permissions that the sanitizer
                needs, and ends at the first finding.
        """
        path = folder / "control"
        with ExitStack() as stack:
            control = stack.enter_context(socket.socket(socket.AF_UNIX))
            control.bind(str(path))
            ports = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
            for listener in (control, *ports):
                listener.setblocking(False)
                listener.listen(128)
            orders = os.memfd_create("orders")
            stack.callback(os.close, orders)
            os.write(orders, first)
            os.lseek(orders, 0, os.SEEK_SET)
            names = dict(zip(("control", "http", "grpc"), (control, *ports), strict=True))
            descriptors = {name: listener.fileno() for name, listener in names.items()} | {"orders": orders}
            arguments = [text for name, each in descriptors.items() for text in (f"--{name}", str(each))]
            self.http, self.grpc = (listener.getsockname() for listener in ports)
            command = [str(program or _PROGRAM), *arguments]
            command += [] if program else ["--reads", str(folder)]
            environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
            self.process = subprocess.Popen(command, pass_fds=descriptors.values(), env=environment)
        self._link = socket.socket(socket.AF_UNIX)
        self._link.settimeout(_PATIENCE_S)
        self._link.connect(str(path))
        self._frames, self._heard = Frames(), list[dict[str, Any]]()
        self.connections: list[socket.socket] = []

    def __enter__(self) -> ControlledPlane:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()
        for each in self.connections:
            each.close()
        status = self.process.poll()
        self.process.kill()
        self.process.wait()
        assert status is None, "the data plane ended before the test stopped it"

    def say(self, message: Mapping[str, Any], data: bytes = b"") -> None:
        self._link.sendall(frame(message, data))

    def hear(self, kind: str) -> dict[str, Any]:
        """Skips messages until one has this type, and returns it."""
        while True:
            while self._heard:
                message = self._heard.pop(0)
                if message["type"] == kind:
                    return message
            data, descriptors, _, _ = socket.recv_fds(self._link, 1 << 16, 8)
            assert data, "the data plane ended"
            for each in descriptors:
                self.connections.append(socket.socket(fileno=each))
                self.connections[-1].settimeout(_PATIENCE_S)
            self._heard += [message for message, _ in self._frames.feed(data)]
