"""The roles of children that run an artifact for `octet run`, `octet bench` and `octet explain`.

An artifact is native code that may come from an untrusted source. The parent has checked the digests of its files, and
passes the tensors. The child measures times, because it is the process that computes.
"""

from __future__ import annotations

import os
import time

from service import runtime
from service.compiler.children.handler import handles
from service.compiler.messages.checking import ProfileResult
from service.compiler.messages.running import (
    BENCH,
    EXPLAIN,
    RUN,
    BenchRequest,
    BenchResult,
    ExplainRequest,
    RunRequest,
    RunResult,
)
from service.compiler.sandbox import Report
from service.runtime.latency import measure
from service.runtime.profile import profile
from service.runtime.shared import SharedTensors
from service.runtime.threads import confined


@handles(RUN)
def run_role(request: RunRequest, report: Report) -> RunResult:
    """Reads inputs from the shared memory `tensors`, writes the outputs there, and returns the duration of the call."""
    model = runtime.load_files(request.config, *request.paths, threads=request.threads)
    shared = SharedTensors(model.signature, request.tensors)
    started_s = time.perf_counter()
    outputs = model.run(shared.inputs)
    took_s = time.perf_counter() - started_s
    for position, output in zip(shared.outputs, outputs, strict=True):
        position[...] = output
    return RunResult(took_s)


@handles(BENCH)
def bench_role(request: BenchRequest, report: Report) -> BenchResult:
    """Measures `runtime.latency.Latency` with the requested number of threads, each on its own core."""
    threads = confined(request.threads)
    model = runtime.load_files(request.config, *request.paths, threads=threads)
    cores = sorted(os.sched_getaffinity(0))
    measured = measure(model, seconds=request.seconds).to_json()
    return BenchResult.from_json({"threads": threads.count, "cores": cores, **measured})


@handles(EXPLAIN)
def explain_role(request: ExplainRequest, report: Report) -> ProfileResult:
    """Measures `runtime.profile.Profile` with the requested number of threads, each on its own core."""
    model = runtime.load_files(request.config, *request.paths, threads=confined(request.threads))
    return ProfileResult.from_json(profile(model, peak=request.peak, seconds=request.seconds).to_json())
