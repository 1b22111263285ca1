"""Octet: a folder that `octet compile` wrote, called as users call it.

`Model.run` checks its inputs and copies its outputs into new memory, which no peer's timed call does. A bound call
(`Model.bind`) reads and writes the same memory repeatedly, without checks, as the peers' timed calls do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.harness.frameworks import Array, Job, Loaded, random_input
from service import runtime
from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.artifacts.buffers import aligned_empty
from service.core.artifacts.explanation import build_explanation
from service.core.digest import parse_digest
from service.runtime.profile import profile

_PROFILE_S = 0.3


def load(job: Job) -> Loaded:
    digest = parse_digest(job.options["digest"]) if "digest" in job.options else None
    model, given = runtime.load(job.path, digest, threads=job.threads), job.given()
    inputs = []
    for index, spec in enumerate(model.signature.inputs):
        value = aligned_empty(spec.shape, spec.dtype)
        value[...] = given[spec.name] if given else random_input(spec.shape, spec.dtype, index)
        inputs.append(value)
    info = {"version": version("octet-serve"), "target": model.config.target, "numerics": model.config.numerics}
    info |= _where_time_goes(model, job.path, inputs)
    if job.options.get("call") != "bound":
        return Loaded(lambda: model.run(inputs), lambda: model.run(inputs), info)
    outputs = [aligned_empty(spec.shape, spec.dtype) for spec in model.signature.outputs]
    model.bind(inputs, outputs)
    return Loaded(model, lambda: [output.copy() for output in outputs], info)


def _where_time_goes(model: runtime.Model, path: str, inputs: Sequence[Array]) -> dict[str, Any]:
    """Returns the shares of the time by type of code, and by operator of generated code."""
    coverage = OciLayout.open(Path(path)).attached(parse_digest(model.digest), Report.COVERAGE)
    if coverage is None:
        return {}
    taken = profile(model, inputs, seconds=_PROFILE_S).to_json()
    explanation = build_explanation(json.loads(coverage), taken)
    return {"time": explanation.shares(), "generated": explanation.generated()}
