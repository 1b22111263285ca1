"""What forwarding costs: a router's data plane before a worker's, beside that worker asked directly.

    python -m benchmarks.serving.router digits=DIR mobilenet=DIR [--seconds 0.5] [--rounds 10]

DIR is what `octet compile` wrote. One client that keeps its connections, in Python, blocks for each answer; direct and
forwarded requests alternate by turns, and each answer is compared with the first. Told are the least medians of the
turns: other load only adds to them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from service.cli.tensors import HEADER_LENGTH, encode_request
from service.core.settings import Settings
from service.workers.data_plane import orders, program
from service.workers.data_plane.frames import Frames, frame

_KEY = "a-key-of-a-benchmark"
_START_LIMIT_S = 60.0


@contextmanager
def worker(sources: list[str]) -> Iterator[int]:
    """The port of an `octet worker serve` that knows the cluster's key."""
    command = [sys.executable, "-m", "service.cli", "worker", "serve", *sources, "--port=0", "--grpc-port=0", "--json"]
    environment = os.environ | {"OCTET_CLUSTER_KEY": _KEY}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout
        said = json.loads(process.stdout.readline())
        yield int(said["url"].rsplit(":", 1)[1])
    finally:
        process.kill()
        process.wait()


@contextmanager
def router(worker_port: int, names: list[str]) -> Iterator[int]:
    """The port of a router's data plane, whose control plane is a thread here."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        control = stack.enter_context(socket.socket(socket.AF_UNIX))
        control.bind(str(folder / "control"))
        public = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512))
        for listener in (control, public):
            listener.listen()
            listener.setblocking(False)
        told = orders.Worker("w", "p", 8, "ready", [(name, "") for name in names])
        first = [orders.configure(Settings()), orders.keys(is_asked=False), orders.workers(_KEY, [told], ())]
        memory = os.memfd_create("orders")
        stack.callback(os.close, memory)
        os.write(memory, b"".join(map(frame, first)))
        os.lseek(memory, 0, os.SEEK_SET)
        inherited = {"control": control.fileno(), "http": public.fileno(), "orders": memory}
        flags = [text for name, each in inherited.items() for text in (f"--{name}", str(each))]
        command = [str(program.PATH), *flags, "--reads", str(folder)]
        process = subprocess.Popen(command, pass_fds=list(inherited.values()))
        stack.callback(process.wait)
        stack.callback(process.kill)
        link = stack.enter_context(socket.socket(socket.AF_UNIX))
        link.connect(str(folder / "control"))
        threading.Thread(target=_connect, args=(link, worker_port), daemon=True).start()
        yield public.getsockname()[1]


def _connect(link: socket.socket, port: int) -> None:
    """Opens the connections that the router asks for."""
    frames = Frames()
    with suppress(OSError):
        while data := link.recv(1 << 16):
            for message, _ in frames.feed(data):
                if message["type"] != "question":
                    continue
                answer = frame({"type": "answer", "question": message["question"], "passes": True})
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    socket.send_fds(link, [answer], [connection.fileno()])


class Client:
    """One connection."""

    def __init__(self, port: int, model: str, body: bytes, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._path, self._body, self._headers = f"/v2/models/{model}/infer", body, headers

    def ask(self) -> bytes:
        """Raises RuntimeError: it was refused."""
        self._connection.request("POST", self._path, self._body, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{response.status}: {answer!r}")
        return answer

    def turn(self, seconds: float, wanted: bytes) -> list[float]:
        """The times of requests, in seconds."""
        times, until_s = list[float](), time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            began_s = time.perf_counter()
            answer = self.ask()
            times.append(time.perf_counter() - began_s)
            if answer != wanted:
                raise RuntimeError("an answer is another than the first")
        return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    names = [source.partition("=")[0] for source in arguments.sources]
    with worker(arguments.sources) as direct, router(direct, names) as forwarded:
        for name in names:
            measure(name, direct, forwarded, arguments.rounds, arguments.seconds)


def measure(name: str, direct: int, forwarded: int, rounds: int, seconds: float) -> None:
    metadata: dict[str, Any] = {}
    for _ in range(int(_START_LIMIT_S / 0.1)):
        with suppress(OSError, KeyError, http.client.HTTPException):
            about = http.client.HTTPConnection("127.0.0.1", direct)
            about.request("GET", f"/v2/models/{name}", headers={"octet-cluster-key": _KEY})
            metadata = json.loads(about.getresponse().read())
            break
        time.sleep(0.1)
    given = metadata["inputs"][0]
    kind = {"UINT8": np.uint8, "INT8": np.int8}[given["datatype"]]
    shape = [1 if size < 0 else size for size in given["shape"]]
    values = np.random.default_rng(0).integers(0, 100, shape, kind)
    body, header_bytes = encode_request([given["name"]], [values])
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(header_bytes)}
    clients = [Client(port, name, body, headers) for port in (direct, forwarded)]
    wanted = [client.ask() for client in clients]
    if wanted[0] != wanted[1]:
        raise RuntimeError("the router's answer is another than the worker's")
    medians: list[list[float]] = [[], []]
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            medians[which].append(median(clients[which].turn(seconds, wanted[0])))
    least = [1e6 * min(each) for each in medians]
    print(
        f"{name:14} {len(body):7} bytes in, {len(wanted[0]):6} out: direct p50 {least[0]:7.1f} µs, "
        f"forwarded {least[1]:7.1f} µs, the hop adds {least[1] - least[0]:6.1f} µs",
        flush=True,
    )


if __name__ == "__main__":
    main()
