"""Scalar operations of generated code that TVM would not compile, or would compile wrongly, as they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from service.compiler.qnn.expressions.ops import Value
from service.compiler.qnn.expressions.tensors import TENSORS
from service.core.models.arrays import Array


def computed(function, x: Array) -> Array:  # type: ignore[no-untyped-def]
    """Returns `function` of each element, in the code that TVM generates."""
    source = te.placeholder(x.shape, str(x.dtype), "x")
    result = te.compute(x.shape, lambda i: function(source[i]), "y")
    program = te.create_prim_func([source, result]).with_attr("global_symbol", "f")
    built = tvm.compile(tvm.IRModule({"f": program}), target="llvm")
    out = tvm.runtime.tensor(np.zeros(x.shape, str(result.dtype)))
    built["f"](tvm.runtime.tensor(x), out)
    return np.asarray(out.numpy())


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3.25, math.inf, -math.inf, math.nan])
def test_the_bits_of_a_number_are_that_number(value: float) -> None:
    bits = int(np.array(value, np.float32).view(np.int32))

    def add(x: Value) -> Value:
        return TENSORS.bits(TENSORS.const(bits), "float32") + x

    x = np.array([0.0, 1.0], np.float32)
    np.testing.assert_array_equal(computed(add, x), np.float32(value) + x)


def test_limited_values_round_to_an_integer_and_nan_to_the_least() -> None:
    x = np.array([1e30, -1e30, math.inf, -math.inf, math.nan, 2.5, -2.5], np.float32)
    rounded = computed(lambda value: TENSORS.round_even(TENSORS.limited(value)), x)
    assert rounded.tolist() == [1 << 30, -(1 << 30), 1 << 30, -(1 << 30), -(1 << 30), 2, -2]


def test_shifts_by_variable_counts() -> None:
    x = np.arange(32, dtype=np.int32)
    assert computed(lambda count: TENSORS.shift_left(tirx.const(3, "int32"), count), x).tolist() == [
        (3 << count) - (1 << 32) * ((3 << count) >> 31 & 1) if count < 31 else -(1 << 31) for count in range(32)
    ]


@pytest.mark.parametrize("right", [0, 1, 5, 31, 40, 62])
def test_one_rounding_is_away_from_zero_at_halves(right: int) -> None:
    x, significand = np.array([-(1 << 31), -3, -1, 0, 1, 3, (1 << 31) - 1], np.int32), 1 << 30

    def scaled(value: Value) -> Value:
        return TENSORS.scale_once(value, tirx.const(significand, "int32"), tirx.const(right, "int32"))

    half = (1 << right) >> 1
    exact = [(int(value) * significand + half - (value < 0)) >> right for value in x]
    assert computed(scaled, x).tolist() == [max(min(each, 1 << 30), -(1 << 30)) for each in exact]
