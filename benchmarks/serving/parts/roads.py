"""Measures each way to send a prediction, with an independent client: h2load, of the Debian package `nghttp2-client`.

The ways are HTTP/1.1 and gRPC, each in plain text, with a key and over TLS, with the headers of production, and JSON.
Every response must be a 200 and have as many bytes as the outputs; `throughput` compares the values. A request's
latency is the one that h2load reports; h2load sleeps while it waits.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.harness.machine import OtherLoad, send_signal, tree, used_s
from benchmarks.harness.predictions import GRPC_INFER, binary_request, grpc_request, infer_path
from benchmarks.harness.server import Server, serving
from benchmarks.harness.turns import alternate
from benchmarks.serving.bench import Bench
from benchmarks.serving.clients.load import median, percentile
from benchmarks.serving.contestants import Served
from benchmarks.serving.records import Road
from scripts.certificates import make_certificate
from service.cli.client import Client
from service.core.models.arrays import Array
from service.runtime.protocol import HEADER_LENGTH

CLIENT = "h2load"
_KEY = "octet_bench_" + 32 * "k"
_OK = 200
_DATA_BYTES = re.compile(r"traffic: .*\((\d+)\) data")
_DONE = re.compile(r"requests: .* (\d+) done")


@dataclass(frozen=True)
class Request:
    """A request: the body, and the headers that describe it."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Way:
    """One way to send a prediction.

    Attributes:
        server: the server that it uses, `plain`, `keyed` or `tls`.
        request: the request that it sends, `binary`, `json`, `full` (contains an id and a deadline) or `grpc`.
        adds: additional headers.
    """

    title: str
    server: str = "plain"
    request: str = "binary"
    adds: tuple[tuple[str, str], ...] = ()

    @property
    def is_grpc(self) -> bool:
        return self.request == "grpc"


_BEARER = ("authorization", f"Bearer {_KEY}")
_TRACE = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
WAYS: Sequence[Way] = (
    Way("HTTP, binary"),
    Way("HTTP, binary, key", "keyed", adds=(_BEARER,)),
    Way("HTTP, binary, key, id, deadline, trace", "keyed", "full", (_BEARER, _TRACE, ("x-request-id", "one"))),
    Way("HTTP, binary, TLS", "tls"),
    Way("gRPC", request="grpc"),
    Way("gRPC, key", "keyed", "grpc", (_BEARER,)),
    Way("gRPC, TLS", "tls", "grpc"),
    Way("HTTP, JSON", request="json"),
)


def measure(bench: Bench, served: Served, ways: Sequence[Way], connections: Sequence[int]) -> None:
    """Measures these ways to a model in turn, all servers on one core. Raises RuntimeError if a response is wrong."""
    with ExitStack() as stack:
        servers = {name: stack.enter_context(_server(bench, name)) for name in ("plain", "keyed", "tls")}
        with Client(servers["plain"].url) as client:
            metadata = client.metadata(served.name)
        requests = requests_of(served.name, metadata["inputs"][0], bench.images[served.name])
        least_bytes = sum(math.prod(it["shape"]) for it in metadata["outputs"])  # at least one byte for each element
        loads = {
            way: _Load(bench, servers[way.server], way, requests[way.request], served.name, least_bytes) for way in ways
        }
        for server in servers.values():
            send_signal(server.pid, signal.SIGSTOP)
        rates: dict[tuple[str, int], list[float]] = {}
        for number, way in alternate(ways, bench.rules.rounds):
            for count in connections:
                road = loads[way].turn(count, number)
                bench.record(road)
                rates.setdefault((way.title, count), []).append(road.per_s)
        for (title, count), per_s in rates.items():
            print(f"  {title:42} c = {count}: {median(per_s):9.1f} /s", flush=True)


@contextmanager
def _server(bench: Bench, name: str) -> Iterator[Server]:
    """Runs an Octet server on a copy of the data; it must be awake to receive the signal to stop."""
    folder, flags = bench.scratch / f"roads-{name}", ["--no-compile"]
    settings: dict[str, str] = {}
    if not folder.exists():
        shutil.copytree(bench.data_dir, folder)
    if name == "keyed":
        settings = {"OCTET_AUTH": "on", "OCTET_ADMIN_KEY": _KEY}
    if name == "tls":
        cert, key = make_certificate(bench.scratch)
        flags += ["--tls-cert", str(cert), "--tls-key", str(key)]
    with serving(folder, [bench.server_core], bench.scratch / f"roads-{name}.log", *flags, settings=settings) as it:
        try:
            yield it
        finally:
            send_signal(it.pid, signal.SIGCONT)


def requests_of(model: str, given: Mapping[str, str], image: Array) -> dict[str, Request]:
    """Returns the requests of all ways, by name."""
    described = {"name": given["name"], "datatype": given["datatype"], "shape": list(image.shape)}
    full, headers = binary_request([given["name"]], [image], {"timeout": 10_000_000})
    # `id` belongs to the request, beside its parameters.
    headers[HEADER_LENGTH] = str(int(headers[HEADER_LENGTH]) + len('"id": "one", '))
    packed = grpc_request(model, given["name"], given["datatype"], image).SerializeToString()
    return {
        "binary": Request(*binary_request([given["name"]], [image])),
        "full": Request(b'{"id": "one", ' + full[1:], headers),
        "json": Request(
            json.dumps({"inputs": [described | {"data": image.ravel().tolist()}]}).encode(),
            {"content-type": "application/json"},
        ),
        "grpc": Request(
            b"\0" + len(packed).to_bytes(4, "big") + packed, {"content-type": "application/grpc", "te": "trailers"}
        ),
    }


class _Load:
    """Runs h2load for one way. Raises RuntimeError."""

    def __init__(self, bench: Bench, server: Server, way: Way, request: Request, model: str, least_bytes: int) -> None:
        self._bench, self._server, self._way, self._model, self._request = bench, server, way, model, request
        self._body, self._log = bench.scratch / "roads.body", bench.scratch / "roads.log"
        port, path = (server.grpc_port, GRPC_INFER) if way.is_grpc else (server.port, infer_path(model))
        self._url = f"{server.scheme}://{server.host}:{port}{path}"
        self._least_bytes = least_bytes

    def turn(self, connections: int, number: int) -> Road:
        """Runs h2load for one turn. The server is stopped (SIGSTOP) before and after the turn."""
        self._body.write_bytes(self._request.body)
        self._log.unlink(missing_ok=True)
        send_signal(self._server.pid, signal.SIGCONT)
        other, before_s = OtherLoad([self._server.pid]), used_s(tree(self._server.pid))
        try:
            done = subprocess.run(self._command(connections), capture_output=True, text=True, check=True)
            server_s, other_cpus = used_s(tree(self._server.pid)) - before_s, other.cpus()
        except (OSError, subprocess.CalledProcessError) as error:
            raise RuntimeError(f"{CLIENT}, of the package nghttp2-client: {error}") from error
        finally:
            send_signal(self._server.pid, signal.SIGSTOP)
        rows = [line.split("\t") for line in self._log.read_text().splitlines()]
        self._check(done.stdout, rows)
        begun, ended = int(rows[0][0]), max(int(row[0]) + int(row[2]) for row in rows)
        latencies = sorted(int(row[2]) / 1e3 for row in rows)
        return Road(
            model=self._model,
            title=self._way.title,
            round=number,
            connections=connections,
            request_bytes=len(self._request.body),
            per_s=1e6 * len(rows) / (ended - begun),
            p50_ms=percentile(latencies, 50),
            p99_ms=percentile(latencies, 99),
            server_us=1e6 * server_s / len(rows),
            other_cpus=other_cpus,
        )

    def _command(self, connections: int) -> list[str]:
        """Returns the command. The process inherits the pinning to the generator's core."""
        headers = [*self._request.headers.items(), *self._way.adds]
        options = [f"--header={name}: {value}" for name, value in headers]
        options += [
            f"--duration={1e3 * self._bench.rules.seconds:.0f}ms",
            "--warm-up-time=300ms",
            f"--clients={connections}",
        ]
        options += [] if self._way.is_grpc else ["--h1"]
        return [CLIENT, *options, f"--data={self._body}", f"--log-file={self._log}", self._url]

    def _check(self, output: str, rows: Sequence[Sequence[str]]) -> None:
        statuses = Counter(row[1] for row in rows)
        (done,), (data,) = _DONE.findall(output), _DATA_BYTES.findall(output)
        if set(statuses) != {str(_OK)} or int(data) < int(done) * self._least_bytes:
            raise RuntimeError(f"{self._way.title}: {dict(statuses)}, {output}")
