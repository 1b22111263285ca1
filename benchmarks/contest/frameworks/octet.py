"""Octet: a folder that `octet compile` wrote, called as its users call it.

`Model.run` checks the inputs and copies the answer out of the arena, which no peer's timed call does: Octet's figures
are those of the public call, its peers' those of the barest.
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
    return Loaded(
        lambda: model.run(inputs),
        lambda: model.run(inputs),
        {"version": version("octet-serve"), "target": model.config.target, "numerics": model.config.numerics},
    )
