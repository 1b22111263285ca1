"""LiteRT, whose default delegate on a CPU is XNNPACK.

XNNPACK's features that are off by default, and the newer interface (`CompiledModel`), were tried on every TFLite model
of the catalog and were not faster.
"""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from benchmarks.harness.frameworks import Job, Loaded, random_input


def load(job: Job) -> Loaded:
    is_reference = job.options.get("kernels") == "reference"
    resolver = OpResolverType.BUILTIN_REF if is_reference else OpResolverType.BUILTIN
    interpreter = Interpreter(job.path, num_threads=job.threads, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for index, detail in enumerate(interpreter.get_input_details()):
        value = random_input(tuple(detail["shape"]), np.dtype(detail["dtype"]), index)
        interpreter.set_tensor(detail["index"], value)
    indices = [detail["index"] for detail in interpreter.get_output_details()]
    return Loaded(
        interpreter._interpreter.Invoke,
        lambda: [interpreter.get_tensor(index) for index in indices],
        {"version": version("ai-edge-litert")},
    )
