"""The roles of children that run an artifact for `octet run`, `octet bench` and `octet explain`.

An artifact is native code that may come from an untrusted source. The parent has checked the digests of its files, and
passes the tensors. The child measures times, because it is the process that computes.
"""

from __future__ import annotations

import base64
import math
import os
import time

import numpy as np

from service import runtime
from service.compiler.children.handler import handles
from service.compiler.messages.checking import ProfileResult
from service.compiler.messages.running import (
    BENCH,
    COUNT,
    EXPLAIN,
    RUN,
    BenchRequest,
    BenchResult,
    CountRequest,
    CountResult,
    ExplainRequest,
    RunRequest,
    RunResult,
)
from service.compiler.sandbox import Report
from service.core.models.arrays import Array
from service.core.models.ranges import Counts, merge_counts
from service.core.models.signature import ModelSignature
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
    outputs = model.run_padded(shared.inputs, request.length) if request.length else model.run(shared.inputs)
    took_s = time.perf_counter() - started_s
    for position, output in zip(shared.outputs, outputs, strict=True):
        position[...] = output
    return RunResult(took_s)


@handles(COUNT)
def count_role(request: CountRequest, report: Report) -> CountResult:
    """Runs the artifact on each sample, and returns the counts of all calls together."""
    model = runtime.load_files(request.config, *request.paths, threads=request.threads)
    counts: list[Counts] = []
    for sample in request.samples:
        outputs = model.run(split_elements(model.signature, base64.b64decode(sample)))
        found = [tuple(each.tolist()) for each in outputs[len(outputs) - request.counted :]]
        counts = [merge_counts(*each) for each in zip(counts, found, strict=True)] if counts else found
    return CountResult(tuple(counts))


def split_elements(signature: ModelSignature, data: bytes) -> list[Array]:
    """Returns the inputs whose elements are concatenated in `data`. Raises `ValueError` if the size does not fit."""
    arrays, begin = [], 0
    for spec in signature.inputs:
        count = math.prod(spec.shape)
        arrays.append(np.frombuffer(data, spec.dtype, count, begin).reshape(spec.shape))
        begin += count * spec.dtype.itemsize
    if begin != len(data):
        raise ValueError(f"the inputs have {begin} bytes, not {len(data)}")
    return arrays


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
