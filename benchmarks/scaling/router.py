"""Measures the cost of forwarding through a router's data plane, compared with direct requests to the worker, and how
long a request waits when its worker fails.

    python -m benchmarks.scaling.router [--seconds 0.5] [--rounds 10] [--heartbeat 2]

One client in Python, which keeps its connection, blocks for each response. Direct and forwarded requests alternate in
turns, and each response is compared with the first. The figures are the minimum medians of the turns, because other
load only adds to them. Nothing is pinned to cores. Failures: `benchmarks.scaling.failover`.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from tritonclient import grpc as triton
from tritonclient.utils import np_to_triton_dtype

from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.home import CHECKOUT, SHARED
from benchmarks.harness.predictions import binary_request, infer_path
from benchmarks.harness.tables import print_table
from benchmarks.harness.turns import alternate, time_calls
from service.core.models.arrays import Array
from service.core.settings import Settings
from service.workers.data_plane import orders, program
from service.workers.data_plane.frames import Frames, frame

_KEY = "a-key-of-a-benchmark"
_START_LIMIT_S = 60.0
MODELS = {
    "digits": CHECKOUT / "examples" / "digits_uint8.tflite",
    "mobilenet_v2": SHARED / "models" / "tflite" / "mobilenet_v2_1.0_224_quant.tflite",  # 150 KB of picture
}


class Ports(NamedTuple):
    """The ports of a server."""

    http: int
    grpc: int


@contextmanager
def worker(sources: list[str]) -> Iterator[Ports]:
    """Runs an `octet worker serve` with the cluster's key."""
    command = [sys.executable, "-m", "service.cli", "worker", "serve", *sources, "--port=0", "--grpc-port=0", "--json"]
    environment = os.environ | {"OCTET_CLUSTER_KEY": _KEY}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout
        addresses = json.loads(process.stdout.readline())
        yield Ports(*(int(addresses[kind].rsplit(":", 1)[1]) for kind in ("url", "grpc")))
    finally:
        process.kill()
        process.wait()


@contextmanager
def router(worker_port: int, names: list[str]) -> Iterator[Ports]:
    """Runs a router's data plane, with a thread of this process as its control plane."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        control = stack.enter_context(socket.socket(socket.AF_UNIX))
        control.bind(str(folder / "control"))
        public = [stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=512)) for _ in Ports._fields]
        for listener in (control, *public):
            listener.listen()
            listener.setblocking(False)
        member = orders.Worker("w", "p", 8, "ready", [(name, "") for name in names])
        first = [orders.configure(Settings()), orders.keys(is_required=False), orders.workers(_KEY, [member], ())]
        memory = os.memfd_create("orders")
        stack.callback(os.close, memory)
        os.write(memory, b"".join(map(frame, first)))
        os.lseek(memory, 0, os.SEEK_SET)
        ports = {kind: listener.fileno() for kind, listener in zip(Ports._fields, public, strict=True)}
        inherited = {"control": control.fileno(), "orders": memory, **ports}
        flags = [text for name, each in inherited.items() for text in (f"--{name}", str(each))]
        command = [str(program.PATH), *flags, "--reads", str(folder)]
        process = subprocess.Popen(command, pass_fds=list(inherited.values()))
        stack.callback(process.wait)
        stack.callback(process.kill)
        link = stack.enter_context(socket.socket(socket.AF_UNIX))
        link.connect(str(folder / "control"))
        threading.Thread(target=_connect, args=(link, worker_port), daemon=True).start()
        yield Ports(*(listener.getsockname()[1] for listener in public))


def _connect(link: socket.socket, port: int) -> None:
    """Opens the connections that the router requests."""
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


class HttpClient:
    """An HTTP client with one connection."""

    def __init__(self, port: int, model: str, body: bytes, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._path, self._body, self._headers = infer_path(model), body, headers

    def ask(self) -> bytes:
        """Sends a request. Raises RuntimeError if it was refused."""
        self._connection.request("POST", self._path, self._body, self._headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{response.status}: {answer!r}")
        return answer


class GrpcClient:
    """A gRPC client with one connection. It returns the outputs' bytes, because ids differ."""

    def __init__(self, port: int, model: str, name: str, values: Array) -> None:
        self._client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        self._model, self._input = model, triton.InferInput(name, values.shape, np_to_triton_dtype(values.dtype))
        self._input.set_data_from_numpy(values)

    def ask(self) -> bytes:
        """Sends a request. Raises triton's InferenceServerException if it was refused."""
        return b"".join(self._client.infer(self._model, [self._input]).get_response().raw_output_contents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--rounds", type=int, default=10, help="number of turns, direct and forwarded")
    parser.add_argument("--heartbeat", type=float, default=2.0, help="heartbeat of workers, in seconds; 0: no failures")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in arguments.models:
            compile_model(MODELS[name], folder / name)
        sources = [f"{name}={folder / name}" for name in arguments.models]
        direct = stack.enter_context(worker(sources))
        forwarded = stack.enter_context(router(direct.http, arguments.models))
        print(f"{os.cpu_count()} cores, nothing pinned; one client, closed loop")
        print(f"p50 in µs, the least of {arguments.rounds} turns of {arguments.seconds:g} s\n")
        columns = ("model", "protocol, body", "bytes in", "out", "asked directly", "through the router", "the hop")
        measured = (rows(name, direct, forwarded, arguments.rounds, arguments.seconds) for name in arguments.models)
        print_table(columns, itertools.chain.from_iterable(measured))
    if arguments.heartbeat:
        print_failures(arguments.heartbeat)


def print_failures(heartbeat_s: float) -> None:
    from benchmarks.scaling import failover

    print(f"\nthree workers of digits, of which one fails; heartbeat {heartbeat_s:g} s; four clients, closed loop\n")
    columns = ("the worker is", "requests from then on", "failed", "longest request, s", "longest before, s")
    print_table(
        columns,
        (
            [each.how, str(each.requests), str(each.failed), f"{each.longest_s:.2f}", f"{each.usual_s:.2f}"]
            for each in failover.measure(heartbeat_s)
        ),
    )


def rows(name: str, direct: Ports, forwarded: Ports, rounds: int, seconds: float) -> Iterator[list[str]]:
    """Yields rows of the table, one for each protocol and encoding."""
    given = metadata(name, direct.http)["inputs"][0]
    kind = {"UINT8": np.uint8, "INT8": np.int8}[given["datatype"]]
    values = np.random.default_rng(0).integers(0, 100, [1 if size < 0 else size for size in given["shape"]], kind)
    binary, headers = binary_request([given["name"]], [values])
    entry = {
        "name": given["name"],
        "datatype": given["datatype"],
        "shape": values.shape,
        "data": values.ravel().tolist(),
    }
    text = json.dumps({"inputs": [entry]}).encode()
    as_json = {"content-type": "application/json"}
    kinds: dict[str, tuple[int, Callable[[Ports], HttpClient | GrpcClient]]] = {
        "HTTP, binary tensors": (len(binary), lambda ports: HttpClient(ports.http, name, binary, headers)),
        "HTTP, JSON": (len(text), lambda ports: HttpClient(ports.http, name, text, as_json)),
        "gRPC": (values.nbytes, lambda ports: GrpcClient(ports.grpc, name, given["name"], values)),
    }
    for what, (size, make) in kinds.items():
        clients = [make(ports) for ports in (direct, forwarded)]
        wanted = clients[0].ask()

        def ask(client: HttpClient | GrpcClient, wanted: bytes = wanted) -> None:
            if client.ask() != wanted:
                raise RuntimeError("a response differs from the worker's first")

        medians: list[list[float]] = [[], []]
        for _, which in alternate((0, 1), rounds):
            medians[which].append(median(time_calls(partial(ask, clients[which]), seconds)))
        one, other = (1e6 * min(each) for each in medians)
        yield [name, what, str(size), str(len(wanted)), f"{one:.0f}", f"{other:.0f}", f"{other - one:.0f}"]


def metadata(name: str, port: int) -> dict[str, Any]:
    """Returns the worker's metadata of a model, once it is loaded."""
    until_s = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            about = http.client.HTTPConnection("127.0.0.1", port)
            about.request("GET", f"/v2/models/{name}", headers={"octet-cluster-key": _KEY})
            document: dict[str, Any] = json.loads(about.getresponse().read())
            document["inputs"]
            return document
        except (OSError, KeyError, http.client.HTTPException):
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
