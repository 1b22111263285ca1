"""The default schedule computes exact results.

Matrix products of any size equal those of NumPy, even if no tile divides the size. Functions between a dequantization
and a quantization equal those of the oracle.
"""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.lowering.codegen import FUSE
from service.compiler.lowering.schedule import schedule
from service.compiler.qnn import ops, oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.targets import CodegenTarget, OperandTypes, codegen_target
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import detect_host
from tests.support.qnn_models import Emit, compile_and_run, i8, module_of

MODE = get_mode(ONNXRUNTIME)
LHS, RHS, OUT = i8(0.0625, 3), i8(0.125, -2), i8(0.5, 4)
SUMS = accumulator_type(LHS, RHS, axis=2)
NARROW = CodegenTarget({"kind": "llvm"}, OperandTypes("int8", "int8"), vector_bytes=16, vector_registers=16)

LARGEST = 600
PRIMES = [n for n in range(2, LARGEST + 1) if all(n % d for d in range(2, n))]
QUICK = sorted({*range(1, 18), 31, 32, 33, *PRIMES[::24]})
RECTANGLES = [
    (197, 64, 197),
    (197, 197, 64),
    (64, 7, 37),
    (37, 7, 64),
    (1, 37, 101),
    (101, 37, 1),
    (36, 5, 37),
    (37, 5, 36),
]


def equal(m: int, k: int, n: int, target: CodegenTarget, *, batch: int = 1, epilogue: bool = True) -> bool:
    """Returns true if `[batch, m, k] @ [batch, k, n]` is exact, with or without a requantization as its epilogue."""
    rng = np.random.default_rng(m * LARGEST + n)
    a, b = (rng.integers(-128, 128, (batch, *shape), np.int8) for shape in ((m, k), (k, n)))
    expected = (a.astype(np.int64) - LHS.zero_point) @ (b.astype(np.int64) - RHS.zero_point)

    def body(emit: Emit, operands: list[relax.Var]) -> relax.Var:
        sums = emit(ops.matmul(operands[0], operands[1], LHS, RHS))
        return emit(ops.requantize(sums, SUMS, OUT)) if epilogue else sums

    module = module_of([(a.shape, "int8"), (b.shape, "int8")], body)
    if epilogue:
        (expected,) = oracle.run(module, MODE, [a, b])
    llvm = tvm.target.Target(dict(target.llvm))
    with llvm:
        scheduled = schedule(tvm.transform.Sequential(list(FUSE))(canonicalize(module, MODE)), target)
        return np.array_equal(compile_and_run(scheduled, [a, b], llvm), expected)


@pytest.mark.parametrize("size", QUICK)
def test_square_products_are_exact(size: int) -> None:
    assert equal(size, 16, size, NARROW)


@pytest.mark.slow
@pytest.mark.parametrize("size", range(1, LARGEST + 1))
def test_square_products_of_every_size_are_exact(size: int) -> None:
    assert equal(size, size, size, codegen_target(detect_host().target))


@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), RECTANGLES)
def test_products_of_several_matrices_are_exact(m: int, k: int, n: int, epilogue: bool) -> None:
    assert equal(m, k, n, codegen_target(detect_host().target), batch=3, epilogue=epilogue)


@pytest.mark.parametrize("dtype", ["int8", "uint16"])
@pytest.mark.parametrize("function", ["erf", "exp", "logistic", "tanh"])
def test_a_function_between_two_conversions_is_exact(function: str, dtype: str) -> None:
    """The expression of the function binds variables. Values are rounded before and after the function."""
    stored = QuantizedType(dtype, (2.0**-6,), (0,))
    x = np.random.default_rng(0).normal(0, 2, (3, 64)).astype(np.float32)

    def body(emit: Emit, operands: list[relax.Var]) -> relax.Var:
        given = emit(ops.dequantize(emit(ops.quantize(operands[0], stored)), stored))
        made = emit(ops.real_function(function, given))
        return emit(ops.dequantize(emit(ops.quantize(made, stored)), stored))

    module = module_of([(x.shape, "float32")], body)
    target = codegen_target(detect_host().target)
    llvm = tvm.target.Target(dict(target.llvm))
    with llvm:
        scheduled = schedule(tvm.transform.Sequential(list(FUSE))(canonicalize(module, MODE)), target)
        (expected,) = oracle.run(module, MODE, [x])
        assert np.array_equal(compile_and_run(scheduled, [x], llvm), expected)
