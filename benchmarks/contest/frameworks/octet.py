"""Octet: a folder that `octet compile` wrote, called as its users call it.

`Model.run` checks its inputs and gives outputs in memory of their own, which no peer's timed call does. A bound call
(`Model.bind`) reads and writes the same memory again and again, without checks: that is what peers are timed at.
"""

from __future__ import annotations

from importlib.metadata import version

from benchmarks.contest.frameworks import Job, Loaded, random_input
from service import runtime
from service.core.buffers import aligned_empty


def load(job: Job) -> Loaded:
    model = runtime.load(job.path, threads=job.threads)
    inputs = []
    for index, spec in enumerate(model.signature.inputs):
        value = aligned_empty(spec.shape, spec.dtype)
        value[...] = random_input(spec.shape, spec.dtype, index)
        inputs.append(value)
    info = {"version": version("octet-serve"), "target": model.config.target, "numerics": model.config.numerics}
    if job.options.get("call") != "bound":
        return Loaded(lambda: model.run(inputs), lambda: model.run(inputs), info)
    outputs = [aligned_empty(spec.shape, spec.dtype) for spec in model.signature.outputs]
    model.bind(inputs, outputs)
    return Loaded(model, lambda: [output.copy() for output in outputs], info)
