"""Sums of bfloat16 products: the oracle is compared with their definition, and generated code with the oracle."""

from __future__ import annotations

import ctypes
import ctypes.util
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import relax

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.sums.bfloat16 import rounded, sums_of_pairs
from service.compiler.qnn.operation import IllTyped
from service.core.target import detect_host
from tests.support.qnn_models import Emit, module_of
from tests.support.selected import run_selected
from tests.unit.compiler.qnn.numerics.sums.test_real import KINDS, _NoKernels

import tvm  # isort: skip

Real = NDArray[np.float32]
Shape = tuple[int, ...]

LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
LIBM.fmaf.restype, LIBM.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
RNG = np.random.default_rng(0)
TINY = np.finfo(np.float32).tiny


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_rounded_to_the_nearest_bfloat16(kind: str) -> None:
    values = KINDS[kind]((999,)).astype(np.float32)
    expected = np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values)
    expected = expected.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(rounded(values), expected)
    np.testing.assert_array_equal(np.signbit(rounded(values)), np.signbit(values))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("run", [14, 7, 2, 1])
def test_pairs_are_added_from_the_end_and_flushed(kind: str, run: int) -> None:
    a, b = (rounded(KINDS[kind](shape).astype(np.float32)) for shape in ((5, 14), (14, 4)))
    expected = np.zeros((5, 4), np.float32)
    for row, column in np.ndindex(expected.shape):
        for first in range(0, 14, run):
            pairs = [range(k, min(k + 2, first + run)) for k in range(first, first + run, 2)]
            for pair in pairs:
                factors = [(a[row, k], b[k, column]) for k in pair]
                for x, y in reversed([*factors, (0.0, 0.0)][:2]):
                    total = np.float32(LIBM.fmaf(x, y, expected[row, column]))
                    expected[row, column] = np.copysign(np.float32(0), total) if abs(total) < TINY else total
    actual = sums_of_pairs(a, b, run)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected) & ~np.isnan(actual) | np.signbit(actual))


def real(*shape: int) -> Real:
    return (RNG.standard_normal(shape) * np.exp2(RNG.integers(-72, 8, shape))).astype(np.float32)


@pytest.mark.parametrize(("lhs", "rhs"), [((2, 7, 33), (33, 40)), ((2, 3, 7, 20), (3, 20, 9))], ids=str)
def test_the_canonical_form_of_a_matrix_product(lhs: Shape, rhs: Shape, tmp_path: Path) -> None:
    bias = relax.const(real(rhs[-1]))
    module = module_of(
        [(lhs, "float32"), (rhs, "float32")],
        lambda emit, inputs: emit(ops.real_matmul(inputs[0], inputs[1], bias, operand_dtype="bfloat16")),
    )
    _same(module, [real(*lhs), real(*rhs)], tmp_path)


@pytest.mark.parametrize("length", [1, 6, 9])
def test_the_canonical_form_of_a_product_with_a_length(length: int, tmp_path: Path) -> None:
    module = module_of(
        [((3, 9), "float32"), ((9, 4), "float32"), ((1,), "int32")],
        lambda emit, inputs: emit(ops.real_matmul(*inputs[:2], length=inputs[2], operand_dtype="bfloat16")),
    )
    lhs = real(3, 9)
    lhs[:, length:] = np.nan
    _same(module, [lhs, real(9, 4), np.array([length], np.int32)], tmp_path)


CONVOLUTIONS: list[tuple[Shape, Shape, Shape, Shape, Shape, int]] = [
    ((1, 9, 10, 16), (24, 3, 3, 8), (2, 1), (1, 1, 1, 1), (1, 1), 2),
    ((1, 9, 10, 16), (16, 3, 3, 1), (1, 1), (1, 0, 1, 1), (1, 2), 16),
    ((2, 5, 6, 3), (20, 3, 3, 3), (1, 2), (0, 0, 0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_the_canonical_form_of_a_convolution(
    case: tuple[Shape, Shape, Shape, Shape, Shape, int], tmp_path: Path
) -> None:
    shape, kernel, strides, padding, dilation, groups = case
    weight, bias = relax.const(real(*kernel)), relax.const(real(kernel[0]))
    window = {"strides": strides, "padding": padding, "dilation": dilation}

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        return emit(ops.real_conv2d(inputs[0], weight, bias, **window, groups=groups, operand_dtype="bfloat16"))

    _same(module_of([(shape, "float32")], body), [real(*shape)], tmp_path)


def _same(module: tvm.IRModule, inputs: list[Any], scratch: Path) -> None:
    """Compares generated code (without kernels) with the oracle."""
    target = detect_host().target
    _, (actual,) = run_selected(module, target, "onnxruntime", inputs, scratch, lambda mode: _NoKernels())
    np.testing.assert_array_equal(actual, oracle.run(module, get_mode("onnxruntime"), inputs)[0])


def test_operands_may_only_be_rounded_to_known_types() -> None:
    a, b = relax.const(real(2, 3)), relax.const(real(3, 4))
    with pytest.raises(IllTyped, match="operand_dtype float16 is not one of"):
        module_of([], lambda emit, _: emit(ops.real_matmul(a, b, operand_dtype="float16")))
