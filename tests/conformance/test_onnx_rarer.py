"""Operators that few networks have, compared with ONNX Runtime: bits, divisions, powers, reductions, functions, losses
and caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.models.arrays import Array
from tests.support.onnx_operator import Constant, assert_as_onnx_runtime, constant

WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "int64")
ROUNDING = 1e-6  # of the largest value: sums in another order, and functions that are rounded once


def _whole(dtype: str, *shape: int, low: int = -100) -> Array:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0 if dtype.startswith("u") else low, 100, shape).astype(dtype)


def _real(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("op_type", ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
def test_bits(op_type: str, dtype: str) -> None:
    operands = [_whole(dtype, 3, 4), _whole(dtype, 4)][: 1 if op_type == "BitwiseNot" else 2]
    assert_as_onnx_runtime(op_type, operands, [dtype], compiled=dtype == "int16")


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifted_bits(direction: str) -> None:
    operands = [_whole("uint8", 3, 4), np.array([0, 1, 6, 7], np.uint8)]
    assert_as_onnx_runtime("BitShift", operands, ["uint8"], compiled=True, direction=direction)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_of_whole_numbers(op_type: str, dtype: str) -> None:
    divisors = np.array([-1, 3, 7, -2] if dtype[0] == "i" else [1, 3, 7, 2], dtype)
    lhs = _whole(dtype, 3, 4)
    lhs[0, 1] = np.iinfo(dtype).min
    for rhs in (divisors, Constant(divisors)):
        assert_as_onnx_runtime(op_type, [lhs, rhs], [dtype], compiled=op_type == "Div" and dtype in ("int8", "int64"))


@pytest.mark.parametrize("base", ["int32", "int64", "float32"])
@pytest.mark.parametrize("exponent", ["int32", "int64", "float32"])
def test_powers(base: str, exponent: str) -> None:
    x, tolerance = _whole(base, 3, 4, low=-5) % 7, 0.0 if base != "float32" else ROUNDING
    for each in (_whole(exponent, 4) % 5, constant(2, exponent), constant(3, exponent)):
        assert_as_onnx_runtime("Pow", [x, each], [base], tolerance=tolerance)


REDUCTIONS = ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare")


@pytest.mark.parametrize("op_type", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_reductions(op_type: str, dtype: str) -> None:
    if dtype != "float32" and "Log" in op_type:
        return
    x = np.abs(_real(3, 4, 5) * 3).astype(dtype)
    for axes in ([0], [1], [0, 1], [1, 2], [-1], None):
        operands = [x, *([] if axes is None else [constant(axes)])]
        for keepdims in (0, 1):
            assert_as_onnx_runtime(op_type, operands, [dtype], 18, tolerance=ROUNDING, keepdims=keepdims)


@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_a_reduction_of_no_axes(op_type: str) -> None:
    assert_as_onnx_runtime(op_type, [np.abs(_real(2, 3))], opset=18, tolerance=ROUNDING, noop_with_empty_axes=1)


@pytest.mark.parametrize("op_type", ["Acosh", "Asinh", "Atanh", "Cosh", "Sinh"])
def test_hyperbolic_functions(op_type: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(50) * 10 ** rng.uniform(-20, 4, 50), [0, -0.0, 1, -1]]).astype(np.float32)
    x = np.abs(x) + 1 if op_type == "Acosh" else np.tanh(x) * np.float32(0.999) if op_type == "Atanh" else x
    x = np.clip(x, -80, 80) if op_type in ("Cosh", "Sinh") else x
    assert_as_onnx_runtime(op_type, [x], tolerance=ROUNDING, compiled=True)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *(("Hardmax", [_whole("uint8", 2, 3, 4).astype("f") % 3], {"axis": axis, "opset": opset})
      for axis in (0, 1, 2, -1) for opset in (11, 13)),
    *(("Mean", [_real(3, 4)] * count, {"tolerance": ROUNDING}) for count in (1, 2, 5)),
    *(("CenterCropPad", [_real(4, 6), constant(size)], {}) for size in ([3, 5], [8, 2], [4, 4], [7, 9])),
    *(("EyeLike", [_real(3, 5)], {"k": k}) for k in (-9, -1, 0, 2, 9)),
    *(("TensorScatter", [_real(2, 3, 6, 4), _real(2, 3, 2, 4), np.array(at)], {"mode": mode, "opset": 24})
      for mode in ("linear", "circular") for at in ([0, 1], [3, 4])),
    ("TensorScatter", [_real(2, 3, 6, 4), _real(2, 3, 2, 4)], {"opset": 24}),
    ("TensorScatter", [_real(2, 3, 6, 4), _real(2, 1, 6, 4), np.array([2, 0])], {"axis": 1, "opset": 24}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_rare_operator(case: tuple[str, list[Any], dict[str, Any]]) -> None:
    op_type, operands, attributes = case
    assert_as_onnx_runtime(op_type, operands, **attributes)


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int32"])
def test_shrunk_values(dtype: str) -> None:
    assert_as_onnx_runtime("Shrink", [(_real(3, 4) * 4).astype(dtype)], [dtype], lambd=1.5, bias=0.5)


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_extremes_of_booleans(op_type: str) -> None:
    assert_as_onnx_runtime(op_type, [_real(3, 4) > 0, constant([1])], ["bool"], compiled=True, keepdims=0)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_last_of_equal_values(op_type: str, axis: int) -> None:
    x = _whole("uint8", 2, 3, 4).astype(np.float32) % 3
    assert_as_onnx_runtime(op_type, [x], ["int64"], axis=axis, select_last_index=1)


@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 3, 2)])
def test_losses(op_type: str, reduction: str, shape: tuple[int, ...]) -> None:
    choices: list[dict[str, Any]] = [{}, {"ignore_index": -1}, {"ignore_index": 2}]
    for ignored in choices:
        classes = _whole("int64", shape[0], *shape[2:], low=0) % 4
        if ignored.get("ignore_index") == -1:
            classes.reshape(-1)[0] = -1
        for weights in ([], [np.abs(_real(4))]):
            operands = [-np.abs(_real(*shape)), classes, *weights]  # no cancellation in the sum
            assert_as_onnx_runtime(op_type, operands, opset=13, tolerance=ROUNDING, reduction=reduction, **ignored)


def test_the_statistics_of_a_layer_normalization() -> None:
    operands = [_real(2, 3, 8), _real(8), _real(8)]
    assert_as_onnx_runtime("LayerNormalization", operands, ["float32"] * 3, tolerance=ROUNDING)
