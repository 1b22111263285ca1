"""The roles of children that run an artifact for `octet run`, `octet bench` and `octet explain`.

An artifact is native code that may come from an untrusted source. The parent has checked the digests of its files and
passes the tensors. Times are measured in the child, which is the process that computes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service import runtime
from service.compiler.sandbox import Report
from service.core.artifact import ArtifactConfig
from service.runtime.latency import measure
from service.runtime.profile import profile
from service.runtime.shared import SharedTensors
from service.runtime.threads import Threads, confined


def run_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Reads inputs from the shared memory `tensors`, writes outputs to it, and returns the duration of the call."""
    model = _model(request, request["threads"])
    shared = SharedTensors(model.signature, request["tensors"])
    started_s = time.perf_counter()
    outputs = model.run(shared.inputs)
    took_s = time.perf_counter() - started_s
    for place, output in zip(shared.outputs, outputs, strict=True):
        place[...] = output
    return {"seconds": took_s}


def bench_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measures `runtime.latency.Latency` with the requested number of threads, each on its own core."""
    threads = confined(request["threads"])
    model = _model(request, threads)
    cores = sorted(os.sched_getaffinity(0))
    return {"threads": threads.count, "cores": cores, **measure(model, seconds=request["seconds"]).to_json()}


def explain_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """Measures `runtime.profile.Profile` with the requested number of threads, each on its own core."""
    model = _model(request, confined(request["threads"]))
    return profile(model, peak=request["peak"], seconds=request["seconds"]).to_json()


def _model(request: Mapping[str, Any], threads: int | Threads) -> runtime.Model:
    config = ArtifactConfig.from_json(request["config"])
    return runtime.load_files(config, Path(request["library"]), Path(request["constants"]), threads=threads)
