"""A role that runs LiteRT: pass this file as `handlers` to `run_child`. The sandbox must allow everything that LiteRT
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from service.compiler.sandbox import Report

Request = Mapping[str, Any]
Result = Mapping[str, Any]


TASKS = Path("/proc/self/task")


def reference(request: Request, report: Report | None = None) -> Result:
    """Runs LiteRT with its reference kernels on one thread, and with its default delegate on two."""
    outputs = []
    for resolver, threads in ((OpResolverType.BUILTIN_REF, 1), (OpResolverType.AUTO, 2)):
        interpreter = Interpreter(request["model"], num_threads=threads, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
        (given,) = interpreter.get_input_details()
        x = np.random.default_rng(0).integers(-128, 128, given["shape"]).astype(given["dtype"])
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    return {"outputs": [output.tolist() for output in outputs], "threads": sum(1 for _ in TASKS.iterdir())}
