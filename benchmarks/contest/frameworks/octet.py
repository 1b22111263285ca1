"""Octet: a folder that `octet compile` wrote.

`Model.run` copies the answer out of the arena, which no other contestant does, so what is timed is what it calls in
between, on tensors that were made before: taking the cores, and the virtual machine's function.
"""

from __future__ import annotations

from importlib.metadata import version

import tvm_ffi

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
    model.run(inputs)
    threads, entry = model.threads, model._entry
    given = [*map(tvm_ffi.from_dlpack, inputs), *model._tensors]

    def call() -> None:
        with threads:
            entry(*given)

    return Loaded(
        call,
        lambda: model.run(inputs),
        {"version": version("octet"), "target": model.config.target, "numerics": model.config.numerics},
    )
