"""Measures the time that serving adds to the bare call, one request after the other: over REST, over gRPC, and over TCP
alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack, closing, nullcontext

import grpc

from benchmarks.harness.link import Waiting
from benchmarks.harness.predictions import GRPC_INFER, binary_request, grpc_request, infer_path
from benchmarks.harness.server import HttpCall, Server
from benchmarks.harness.turns import Timed, take_turns, time_warm_calls
from benchmarks.serving import hosts
from benchmarks.serving.bench import Bench
from benchmarks.serving.clients.awake import Awake
from benchmarks.serving.clients.floor import floor
from benchmarks.serving.contestants import BARE, FLOOR, GRPC, OCTET, Served
from benchmarks.serving.records import Overhead
from service.api.grpc.inference_pb2 import ModelInferResponse
from service.cli.client import Client
from service.core.models.arrays import Array

_TITLES = {
    BARE: ("bare call, Model.run", "none: the same process"),
    FLOOR: ("echo of the same sizes, busy for as long", "raw bytes"),
    OCTET: ("REST predict", "v2 REST, binary tensors both ways"),
    GRPC: ("gRPC predict", "ModelInfer, raw contents both ways"),
}
_AWAKE = "blocking, its core kept awake"  # the closest that grpcio comes to polling


class GrpcCall:
    """Sends the same ModelInfer request repeatedly over one channel. The message is built beforehand. Implements
    `turns.Timed`.

    grpcio sleeps until the response arrives; `awake` then keeps its core from halting.
    """

    def __init__(
        self, server: Server, model: str, name: str, datatype: str, image: Array, awake: Awake | None = None
    ) -> None:
        self._request, self._server = grpc_request(model, name, datatype, image).SerializeToString(), server
        self._awake = awake
        self._channel = grpc.insecure_channel(f"{server.host}:{server.grpc_port}")
        self._infer = self._channel.unary_unary(GRPC_INFER)

    @property
    def pids(self) -> Sequence[int]:
        return [self._server.pid, *([self._awake.pid] if self._awake else [])]

    def __call__(self) -> bytes:
        answer: bytes = self._infer(self._request, timeout=60)
        return answer

    def durations_s(self, seconds: float) -> list[float]:
        with self._awake or nullcontext():
            return time_warm_calls(self, seconds)

    def close(self) -> None:
        self._channel.close()


def measure(bench: Bench, served: Served, rounds: int, seconds: float) -> None:
    """Measures the overhead. Raises RuntimeError if a server's outputs differ from the bare call's."""
    image = bench.images[served.name]
    with ExitStack() as stack:
        _, server = stack.enter_context(
            hosts.octet(bench.data_dir, served.name, image, bench.server_core, bench.scratch)
        )
        bare = stack.enter_context(bench.bare(served.name))
        busy_s = statistics.median(bare.durations_s(seconds))
        contenders: dict[tuple[str, str], Timed] = {(BARE, ""): bare}
        for waiting in Waiting:
            calls = _calls(bench, served, server, waiting, busy_s, bare.outputs()[0].tobytes(), stack)
            contenders |= {(name, waiting): call for name, call in calls.items()}
        for (name, client), timings in take_turns(contenders, rounds, seconds).items():
            title, encoding = _TITLES[name]
            print(f"  {f'{title}, {client}':60} {timings.median_ms:8.3f} ms", flush=True)
            bench.record(
                Overhead(
                    model=served.name,
                    contender=name,
                    title=title,
                    encoding=encoding,
                    request_bytes=image.nbytes,
                    medians_ms=timings.medians_ms,
                    calls=sum(map(len, timings.rounds)),
                    other_cpus=round(statistics.mean(timings.other_cpus), 3),
                    client=_AWAKE if (name, client) == (GRPC, Waiting.POLLING) else client,
                    busy_ms=1e3 * busy_s if name == FLOOR else 0.0,
                )
            )


def _calls(
    bench: Bench, served: Served, server: Server, waiting: Waiting, busy_s: float, scores: bytes, stack: ExitStack
) -> dict[str, Timed]:
    """Returns the calls of a client with this way of waiting, by contestant. Raises RuntimeError if an output differs
    from `scores`.
    """
    image = bench.images[served.name]
    with Client(server.url) as client:
        (given,) = client.metadata(served.name)["inputs"]
    body, headers = binary_request([given["name"]], [image])
    path = infer_path(served.name)
    rest = stack.enter_context(closing(HttpCall(server, "POST", path, headers, body, bench.client_core, waiting)))
    awake = stack.enter_context(closing(Awake(bench.client_core))) if waiting is Waiting.POLLING else None
    rpc = stack.enter_context(closing(GrpcCall(server, served.name, given["name"], given["datatype"], image, awake)))
    head, answer = rest()
    if not answer.endswith(scores) or ModelInferResponse.FromString(rpc()).raw_output_contents != [scores]:
        raise RuntimeError("the server's outputs differ from those of the bare call")
    echo = floor(bench.server_core, len(rest.request), len(head) + len(answer), busy_s, waiting)
    return {FLOOR: stack.enter_context(echo), OCTET: rest, GRPC: rpc}
