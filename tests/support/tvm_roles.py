"""Roles that use TVM and the runtime: pass this file as `handlers` to `run_child`. The sandbox must allow everything
that they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.sandbox import Report
from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.call_plan import ALIGNMENT_BYTES, Buffer, Call, CallPlan, Space
from service.core.models.signature import ModelSignature, TensorSpec

Request = Mapping[str, Any]
Result = Mapping[str, Any]

_ROWS, _COLUMNS = 64, 4096
_SYMBOL = "octet_plain_exp"
_BYTES = 4 * _ROWS * _COLUMNS


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def build(request: Request, report: Report) -> Result:
    """Compiles exp(x + 1) on `[64, 4096]` float32. The rows are computed in parallel.

    The 1 is folded from a constant expression. To do so, TVM compiles and runs code.
    """
    # imported here, because the process that runs the library does not have TVM, and because this tests imports in the
    # sandbox
    import tvm
    from tvm import relax

    from service.compiler.lowering.codegen import generate
    from service.compiler.targets import CodegenTarget, OperandTypes

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([_ROWS, _COLUMNS], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            half = relax.const(np.full((_COLUMNS,), 0.5, "float32"))
            one = builder.emit(relax.op.add(half, half))
            result = builder.emit_output(relax.op.exp(relax.op.add(x, one)))
        builder.emit_func_output(result)
    passes = [relax.transform.FoldConstant(), relax.transform.LegalizeOps()]
    passes += [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(), relax.transform.FuseTIR()]
    module = tvm.transform.Sequential(passes)(builder.get())
    (function,) = (each for each in module.functions.values() if isinstance(each, tvm.tirx.PrimFunc))
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"exp": function}))
    for block in schedule.get_child_blocks(schedule.get_sblock("root", "exp")):
        schedule.parallel(schedule.get_loops(block)[0])
    llvm = CodegenTarget(request["target"], OperandTypes("uint8", "int8"), 16, 16)
    generate(schedule.mod, llvm, Path("plain.o"))
    return {"objects": ["plain.o"]}


def run(request: Request, report: Report) -> Result:
    """Runs the library that `build` and the linker have created. It uses only the runtime, with several threads."""
    from service import runtime

    spec = TensorSpec("x", "FP32", (_ROWS, _COLUMNS))
    buffers = Buffer(Space.INPUT, 0, _BYTES), Buffer(Space.CONSTANT, 0, 4 * _COLUMNS), Buffer(Space.OUTPUT, 0, _BYTES)
    plan = CallPlan(0, buffers, (Call(_SYMBOL, (0, 1, 2)),))
    constants = Path("constants.bin")
    constants.write_bytes(np.ones(_COLUMNS, np.float32).tobytes())
    config = ArtifactConfig(ModelSignature((spec,), (spec,)), request["name"], "xnnpack", plan)
    model = runtime.load_files(config, Path(request["library"]), constants, threads=2)
    x = np.random.default_rng(0).random(spec.shape, dtype=np.float32)
    result = model.run([x])[0]
    assert result.ctypes.data % ALIGNMENT_BYTES == 0
    return {"difference": float(np.abs(result - np.exp(x + 1)).max()), "threads": _threads()}
