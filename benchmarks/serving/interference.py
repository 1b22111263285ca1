"""Measures the latency of predictions while the same server builds a model for the first time, compared with quiet
phases.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from benchmarks.build_and_serve import infer_call, push
from benchmarks.measure import TIMES
from benchmarks.server import HttpCall, Server, serving
from benchmarks.serving.bench import Bench
from benchmarks.serving.contestants import Served
from benchmarks.serving.load import percentile
from benchmarks.serving.processes import OtherLoad
from benchmarks.serving.records import Interference
from service.cli.client import Client
from service.core.settings import Settings

_BUILT = "fresh"
_NUMERICS = "litert-reference"  # other than the served build's, because it would be the same build otherwise
_PAUSE_S = 0.01  # between two requests: server and client wake up, as under any load below saturation
_SETTLE_S = 2.0


def measure(bench: Bench, served: Served, cores: Sequence[int], quiet_s: float) -> None:
    """Measures each round: quiet, beside a build, quiet again.

    Args:
        cores: the server's cores; it has its default settings.
        quiet_s: duration of each quiet phase.
    """
    for number in range(bench.rules.rounds):
        folder = bench.scratch / f"interference-{number}"
        shutil.copytree(bench.data_dir, folder)
        settings = Settings(data_dir=folder)
        for cache in (settings.objects_dir, settings.results_dir):
            shutil.rmtree(cache, ignore_errors=True)  # otherwise the build would compile nothing
        record = _round(bench, served, cores, number, folder, quiet_s)
        bench.record(record)
        print(f"  {described(record)}", flush=True)
        shutil.rmtree(folder)


def described(of: Interference) -> str:
    """Returns the ratios of the percentiles, in a line."""
    quiet, beside = sorted(of.quiet_ms), sorted(of.beside_ms)
    parts = []
    for percent in (50, 90, 99):
        before, after = percentile(quiet, percent), percentile(beside, percent)
        parts.append(f"p{percent} {before:.2f} ms quiet, {after:.2f} ms beside: {after / before:.2f} {TIMES}")
    return f"{'; '.join(parts)} ({len(beside)} calls in {of.build_s:.1f} s; other CPUs {of.other_cpus:.2f})"


def _round(
    bench: Bench, served: Served, cores: Sequence[int], number: int, folder: Path, quiet_s: float
) -> Interference:
    with (
        serving(folder, cores, bench.scratch / "interference.log") as server,
        closing(infer_call(server, served.name, [bench.images[served.name]], bench.client_core)) as infer,
        ThreadPoolExecutor(1) as pool,
    ):
        time.sleep(_SETTLE_S)  # it loads its models, and its compile worker loads the compiler
        other = OtherLoad([server.pid])
        quiet = latencies_ms(infer, _for(quiet_s))
        building = pool.submit(_build, bench, served, server)
        beside = latencies_ms(infer, building.done)
        build_s = building.result()
        time.sleep(_SETTLE_S)
        quiet += latencies_ms(infer, _for(quiet_s))
        return Interference(served.name, number, len(cores), build_s, quiet, beside, other.cpus())


def latencies_ms(infer: HttpCall, is_over: Callable[[], bool]) -> list[float]:
    """Sends one request after the other until `is_over`, each after a pause."""
    found = []
    while not is_over():
        time.sleep(_PAUSE_S)
        begun = time.perf_counter()
        infer()
        found.append(1e3 * (time.perf_counter() - begun))
    return found


def _for(seconds: float) -> Callable[[], bool]:
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends


def _build(bench: Bench, served: Served, server: Server) -> float:
    """Returns the seconds from the push to the end of the build. Raises RuntimeError if it fails."""
    path = bench.home.model(served.row.files["tflite"])
    assert path is not None
    with Client(server.url) as client:
        begun = time.monotonic()
        pushed = push(client, path, _BUILT, _NUMERICS)
        list(client.events(pushed["id"]))  # ends when the build does
        done = client.build(pushed["id"])
    if done["state"] != "succeeded":
        raise RuntimeError(f"{_BUILT}: the build {done['state']}: {done['error']}")
    return time.monotonic() - begun
