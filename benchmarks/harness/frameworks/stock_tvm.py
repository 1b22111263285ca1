"""Apache TVM's own import of a TFLite file, compiled for this CPU by its default pipeline."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.frameworks import Job, Loaded, random_input


def load(job: Job) -> Loaded:
    os.environ["TVM_NUM_THREADS"] = str(job.threads)  # before TVM is loaded
    import tflite
    import tvm
    from tvm import relax
    from tvm.relax.frontend.tflite import from_tflite
    from tvm.target.codegen import llvm_get_system_cpu

    module = from_tflite(tflite.Model.GetRootAsModel(Path(job.path).read_bytes(), 0))
    target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu(), "num-cores": job.threads})
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    given = [
        tvm.runtime.tensor(random_input(tuple(map(int, it.ty.shape)), np.dtype(str(it.ty.dtype)), index))
        for index, it in enumerate(module["main"].params)
    ]
    function = machine["main"]

    def outputs() -> list[Any]:
        result = function(*given)
        return [tensor.numpy() for tensor in ([result] if hasattr(result, "numpy") else result)]

    return Loaded(lambda: function(*given), outputs, {"version": version("apache-tvm")})
