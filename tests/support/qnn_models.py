"""Builds QNN modules of a few operators, for tests of the compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import MODES, QNNPACK

# Modes that define the arithmetic of stored values. OpenVINO's computes products in integers, and all else in float.
STORED_MODES = tuple(mode for mode in MODES if "requantize" in get_mode(mode).formulas)
SIGNED_MODES = tuple(mode for mode in STORED_MODES if mode != QNNPACK)  # QNNPACK supports only uint8
# Set by `make test-all`, which compiles every model of conformance tests, and optimizes generated code.
COMPILES_ALL = "OCTET_TEST_COMPILE_ALL" in os.environ
# LLVM's passes take two thirds of the time of compiling, and must not change results. Tests of whole builds run them.
_LLVM: tvm.target.Target | str = "llvm" if COMPILES_ALL else tvm.target.Target({"kind": "llvm", "opt-level": 0})
Emit = Callable[[relax.Expr], relax.Var]


def module_of(
    inputs: Sequence[tuple[Sequence[int], str]], body: Callable[[Emit, list[relax.Var]], relax.Var | list[relax.Var]]
) -> tvm.IRModule:
    """Returns a module whose `main` has parameters of these shapes and dtypes. It returns the tensor or tensors that
    `body(emit, inputs)` returns.
    """
    params = [relax.Var(f"x{i}", relax.TensorType(list(shape), dtype)) for i, (shape, dtype) in enumerate(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = body(lambda expr: graph.emit(builder, expr), params)
            several = isinstance(result, list)
            outputs = [builder.emit_output(part) for part in (result if isinstance(result, list) else [result])]
        builder.emit_func_output(relax.Tuple(outputs) if several else outputs[0])
    return builder.get()


def compile_and_run(module: tvm.IRModule, inputs: Sequence[np.ndarray], target: str | None = None) -> np.ndarray:
    """Compiles a module without QNN operators with TVM, without schedules. Runs it and returns its only output."""
    (result,) = compile_and_run_all(module, inputs, target)
    return result


def compile_and_run_all(
    module: tvm.IRModule, inputs: Sequence[np.ndarray], target: str | None = None
) -> list[np.ndarray]:
    """Like `compile_and_run`, but returns all outputs."""
    (results,) = compile_and_run_each(module, [inputs], target)
    return results


def compile_and_run_each(
    module: tvm.IRModule, samples: Sequence[Sequence[np.ndarray]], target: str | None = None
) -> list[list[np.ndarray]]:
    """Like `compile_and_run_all`, for several samples; compiles once."""
    run = compiled_function(module, target)
    return [run(inputs) for inputs in samples]


def compiled_function(
    module: tvm.IRModule, target: str | None = None
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Compiles a module like `compile_and_run`. Returns a function that runs it and returns all outputs."""
    machine = relax.VirtualMachine(relax.build(module, target or _LLVM), tvm.cpu())

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        result = machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
        return [tensor.numpy() for tensor in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]

    return run


def float32(value: float) -> float:
    """Rounds to the nearest float32, because the scales of stored types must be exact float32 values."""
    return float(np.float32(value))


def u8(scale: float, zero_point: int = 0) -> QuantizedType:
    return QuantizedType("uint8", (float32(scale),), (zero_point,))


def i8(scale: float, zero_point: int = 0) -> QuantizedType:
    return QuantizedType("int8", (float32(scale),), (zero_point,))
