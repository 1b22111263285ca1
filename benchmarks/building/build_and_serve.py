"""One model from end to end: building it, requesting it again, running it beside LiteRT, serving it over HTTP.

    python -m benchmarks.building.build_and_serve examples/digits_int8.tflite
    python -m benchmarks.building.build_and_serve mobilenet_v2_1.0_224_quant.tflite --threads 1 --threads 2

It starts an `octet serve` on an empty folder, so the build is cold: only the operating system's page cache is warm.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.contestant import ContestantProcess
from benchmarks.harness.frameworks import Job
from benchmarks.harness.machine import cores_for, cpu_name
from benchmarks.harness.predictions import (
    binary_request,
    build,
    infer_path,
    input_names,
    largest_difference,
    push,
    random_inputs,
)
from benchmarks.harness.server import HttpCall, Server, header, serving
from benchmarks.harness.tables import table
from benchmarks.harness.turns import COLUMNS, differences_ms, take_turns
from service.cli.client import Client
from service.core.builds.numerics import MODES_OF
from service.core.models.arrays import Array
from service.core.settings import load_settings
from service.core.target import parse_target
from service.runtime.protocol import HEADER_LENGTH, decode_response

_CACHE_HITS = 7


@dataclass(frozen=True)
class Turns:
    rounds: int
    seconds: float


@dataclass(frozen=True)
class Built:
    """A model that was pushed to the server under a separate name for each numerics mode."""

    name: str
    numerics: str
    digest: str
    stages_s: dict[str, float]
    cold_s: float
    hits_s: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a quantized .tflite file")
    parser.add_argument("--numerics", choices=MODES_OF["tflite"], action="append", help="default: all")
    parser.add_argument("--threads", type=int, action="append", help="default: 1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of each contender's turn in each round")
    arguments = parser.parse_args()
    model: Path = arguments.model

    print(f"{model.name}, batch 1, random input; {cpu_name()}, target {parse_target('host')}, {os.cpu_count()} CPUs;")
    print(f"apache-tvm {version('apache-tvm')}, LiteRT (ai-edge-litert) {version('ai-edge-litert')}")
    with tempfile.TemporaryDirectory() as directory:
        data_dir, log = Path(directory) / "data", Path(directory) / "server.log"
        with serving(data_dir, sorted(os.sched_getaffinity(0)), log) as server, Client(server.url) as client:
            built = [measure_build(client, model, numerics) for numerics in arguments.numerics or MODES_OF["tflite"]]
        show_builds(built)
        store, turns = load_settings({"data_dir": data_dir}).store_dir, Turns(arguments.rounds, arguments.seconds)
        for threads in arguments.threads or [1]:
            cores = cores_for(threads)
            with serving(data_dir, cores, log) as server:
                for one in built:
                    show_latency(server, store, model, one, cores, turns, log)


def measure_build(client: Client, model: Path, numerics: str) -> Built:
    """Pushes the model for the first time, then repeatedly.

    Raises:
        RuntimeError: the build failed, or a later push was not served from the cache.
    """
    name = f"benchmark-{numerics}"
    pushed_at_s, begun = time.time(), time.perf_counter()
    done, events = build(client, model, name, numerics)
    cold_s = time.perf_counter() - begun
    hits_s = []
    for _ in range(_CACHE_HITS):
        begun = time.perf_counter()
        again = push(client, model, name, numerics)
        hits_s.append(time.perf_counter() - begun)
        if (again["state"], again["artifact"]) != ("succeeded", done["artifact"]):
            raise RuntimeError(f"not a cache hit: {again}")
    return Built(name, numerics, done["artifact"], stages_s(pushed_at_s, done, events), cold_s, hits_s)


def stages_s(pushed_at_s: float, done: dict[str, Any], events: Sequence[Any]) -> dict[str, float]:
    """Returns the duration of each stage, from the times in the build's events. A stage ends when the next one
    begins."""
    marks = {"upload": pushed_at_s, "queue": _seconds(done["created_at"])}
    for event in events:
        if event.kind in ("stage", "progress"):
            marks.setdefault(event.data["stage"], _seconds(event.data["at"]))
    ends = [*list(marks.values())[1:], _seconds(done["finished_at"])]
    return {name: end - begin for (name, begin), end in zip(marks.items(), ends, strict=True)}


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def show_builds(built: Sequence[Built]) -> None:
    print("\n## Build, seconds (the server and its compiler on all CPUs, nothing pinned)\n")
    stages = list(dict.fromkeys(stage for one in built for stage in one.stages_s))
    rows = [
        [stage, *(f"{one.stages_s[stage]:.3f}" if stage in one.stages_s else "" for one in built)] for stage in stages
    ]
    rows.append(["**first push to built**", *(f"**{one.cold_s:.3f}**" for one in built)])
    rows.append(
        [f"the same push again, median of {_CACHE_HITS}", *(f"{statistics.median(one.hits_s):.3f}" for one in built)]
    )
    print(table(["stage", *(one.numerics for one in built)], rows))


def show_latency(
    server: Server, store: Path, model: Path, built: Built, cores: Sequence[int], turns: Turns, log: Path
) -> None:
    """Times the bare call, LiteRT, and the same call over HTTP, in turns on the same cores."""
    inputs = random_inputs(model)
    client_core = max(set(os.sched_getaffinity(0)) - set(cores), default=cores[-1])
    bare, peer, served, idle = "Octet, Model.run", "LiteRT, xnnpack", "Octet over HTTP, infer", "Octet over HTTP, live"

    def start(framework: str, path: Path, options: dict[str, str]) -> ContestantProcess:
        job = Job(framework, str(path.absolute()), len(cores), list(cores), 1, options)
        return stack.enter_context(ContestantProcess(Path(sys.executable), job, log))

    with ExitStack() as stack:
        octet, litert = start("octet", store, {"digest": built.digest}), start("litert", model, {})
        infer = stack.enter_context(closing(infer_call(server, built.name, inputs, client_core)))
        live = stack.enter_context(closing(HttpCall(server, "GET", "/v2/health/live", {}, b"", client_core)))
        check_same(octet.outputs(), infer)
        difference = largest_difference(octet.outputs(), litert.outputs())
        timings = take_turns({bare: octet, peer: litert, served: infer, idle: live}, turns.rounds, turns.seconds)

    print(
        f"\n## Latency: {built.numerics}, threads: {len(cores)}, pinned to {list(cores)}; client on core {client_core}",
        end="",
    )
    print(" too\n" if client_core in cores else "\n")
    print(table(["", *COLUMNS], [[name, *timing.cells()] for name, timing in timings.items()]))
    added_us = [1e3 * added_ms for added_ms in differences_ms(timings[served], timings[bare])]
    print(
        f"\nOctet takes {timings[bare].median_ms / timings[peer].median_ms:.2f} of LiteRT's time. HTTP adds "
        f"{statistics.median(added_us):.0f} µs to the bare call ({min(added_us):.0f} to {max(added_us):.0f} over the "
        f"rounds); a request that computes nothing takes {1e3 * timings[idle].median_ms:.0f} µs. "
        f"The outputs differ from LiteRT's by at most {difference}."
    )


def infer_call(server: Server, name: str, inputs: Sequence[Array], core: int) -> HttpCall:
    """A predict request with binary tensors in both directions."""
    with Client(server.url) as client:
        body, headers = binary_request(input_names(client, name), inputs)
    return HttpCall(server, "POST", infer_path(name), headers, body, core)


def check_same(outputs: Sequence[Array], infer: HttpCall) -> None:
    """Raises RuntimeError if the server's outputs differ from those of the bare call."""
    head, body = infer()
    served = decode_response(body, int(header(head, HEADER_LENGTH.lower().encode())))[1]
    if any(ours.tobytes() != theirs.tobytes() for ours, theirs in zip(outputs, served.values(), strict=True)):
        raise RuntimeError("the server's outputs differ from those of the bare call")


if __name__ == "__main__":
    main()
