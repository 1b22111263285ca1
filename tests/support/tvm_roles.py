"""Roles that use TVM in earnest, for `run_child(…, handlers=this file)`: the sandbox must let them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from service.compiler.sandbox import Report

Request = Mapping[str, Any]
Result = Mapping[str, Any]


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def build(request: Request, report: Report) -> Result:
    """exp(x + 1) on [4, 16] float32, the 1 folded from a constant expression (which JIT-compiles and runs code)."""
    from tvm import relax  # here, because the runtime alone lacks it; and imports must work in the sandbox too

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 16], "float32"))
    with builder.function("main", [x]):
        half = relax.const(np.full((16,), 0.5, "float32"))
        one = builder.emit(relax.op.add(half, half))
        builder.emit_func_output(builder.emit(relax.op.exp(relax.op.add(x, one))))
    module = relax.transform.FoldConstant()(builder.get())
    executable = tvm.compile(module, tvm.target.Target(dict(request["target"])))

    def keep_objects(output: str, objects: list[str], options: Any = None, **ignored: Any) -> None:
        for path in objects:
            shutil.copyfile(path, Path(path).name)
        Path(output).touch()

    executable.export_library("unlinked.so", fcompile=keep_objects)
    return {"objects": sorted(path.name for path in Path().glob("*.o"))}


def run(request: Request, report: Report) -> Result:
    """The library that `build` and the linker made, on the TVM runtime alone, with threads."""
    from tvm.runtime.vm import VirtualMachine

    machine = VirtualMachine(tvm_ffi.load_module(request["library"]), tvm.cpu())
    x = np.random.default_rng(0).random((4, 16), dtype=np.float32)
    tvm_ffi.get_global_func("runtime.config_threadpool")(1, 2)
    result = machine["main"](tvm.runtime.tensor(x)).numpy()
    return {"difference": float(np.abs(result - np.exp(x + 1)).max()), "threads": _threads()}
