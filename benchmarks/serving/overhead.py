"""What serving adds to the bare call, one request after the other: REST and gRPC, and what TCP alone would."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack, closing

import grpc

from benchmarks.contenders import Octet, Running
from benchmarks.measure import Array, Timed, call_repeatedly, take_turns
from benchmarks.server import HttpCall, Server
from benchmarks.serving import hosts
from benchmarks.serving.bench import Bench
from benchmarks.serving.contestants import BARE, FLOOR, GRPC, OCTET, Served
from benchmarks.serving.floor import floor
from benchmarks.serving.records import Overhead
from service.api.grpc.inference_pb2 import ModelInferRequest, ModelInferResponse
from service.cli.client import Client
from service.cli.tensors import HEADER_LENGTH, encode_request
from service.core.settings import load_settings

_TITLES = {
    BARE: ("bare call, Model.run", "none: the same process"),
    FLOOR: ("blocking-socket echo of the same sizes", "raw bytes"),
    OCTET: ("REST predict", "v2 REST, binary tensors both ways"),
    GRPC: ("gRPC predict", "ModelInfer, raw contents both ways"),
}


class GrpcCall:
    """The same ModelInfer over one channel; a `measure.Timed`. Its message is made beforehand."""

    def __init__(self, server: Server, model: str, name: str, datatype: str, image: Array) -> None:
        message = ModelInferRequest(model_name=model, raw_input_contents=[image.tobytes()])
        message.inputs.add(name=name, datatype=datatype, shape=list(image.shape))
        self._request, self._pid = message.SerializeToString(), server.pid
        self._channel = grpc.insecure_channel(f"{server.host}:{server.grpc_port}")
        self._infer = self._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    @property
    def pids(self) -> Sequence[int]:
        return [self._pid]

    def __call__(self) -> bytes:
        answer: bytes = self._infer(self._request, timeout=60)
        return answer

    def durations_s(self, seconds: float) -> list[float]:
        return call_repeatedly(self, seconds)

    def close(self) -> None:
        self._channel.close()


def measure(bench: Bench, served: Served, rounds: int, seconds: float) -> None:
    """Raises RuntimeError if a server answers anything but what the bare call does."""
    image = bench.images[served.name]
    store = load_settings({"data_dir": bench.data_dir}).store_dir
    with ExitStack() as stack:
        _, server = stack.enter_context(
            hosts.octet(bench.data_dir, served.name, image, bench.server_core, bench.scratch)
        )
        bare = stack.enter_context(Running(Octet(store, bench.digests[served.name]), [image], [bench.server_core]))
        with Client(server.url) as client:
            (given,) = client.metadata(served.name)["inputs"]
        body, json_bytes = encode_request([given["name"]], [image])
        headers = {HEADER_LENGTH: str(json_bytes), "Content-Type": "application/octet-stream"}
        path = f"/v2/models/{served.name}/infer"
        rest = stack.enter_context(closing(HttpCall(server, "POST", path, headers, body, bench.client_core)))
        rpc = stack.enter_context(closing(GrpcCall(server, served.name, given["name"], given["datatype"], image)))
        head, answer = rest()
        (scores,) = ModelInferResponse.FromString(rpc()).raw_output_contents
        if not answer.endswith(bare.outputs[0].tobytes()) or scores != bare.outputs[0].tobytes():
            raise RuntimeError("the server's answer is not that of the bare call")
        echo = stack.enter_context(floor(bench.server_core, len(rest.request), len(head) + len(answer)))
        contenders: dict[str, Timed] = {BARE: bare, FLOOR: echo, OCTET: rest, GRPC: rpc}
        for name, timings in take_turns(contenders, rounds, seconds).items():
            title, encoding = _TITLES[name]
            calls, other = sum(map(len, timings.rounds)), statistics.mean(timings.other_cpus)
            print(f"  {title:40} {timings.median_ms:8.3f} ms", flush=True)
            sizes = len(rest.request)
            bench.record(
                Overhead(served.name, name, title, encoding, sizes, timings.medians_ms, calls, round(other, 3))
            )
