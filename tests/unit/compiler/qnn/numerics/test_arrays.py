"""The scalar operations in NumPy give the results that tensor programs give on the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.arrays import ARRAYS

_RNG = np.random.default_rng(0)
FLOATS = np.concatenate(
    [
        _RNG.integers(0, 1 << 32, 2000, np.uint32).view(np.float32),
        _RNG.normal(0, 4, 2000).astype(np.float32),
        np.arange(-8, 8.5, 0.5, dtype=np.float32),
        np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**31, -(2.0**31)], np.float32),
    ]
)
INTS = np.concatenate([_RNG.integers(-(1 << 31), 1 << 31, 4000), [0, 1, -1, (1 << 31) - 1, -(1 << 31)]]).astype(
    np.int32
)
SMALL = FLOATS[np.abs(FLOATS) < 2**30]


@pytest.mark.parametrize(
    ("compute", "values", "result"),
    [
        (lambda ops, x: ops.magnitude(x), FLOATS, "float32"),
        (lambda ops, x: ops.copy_sign(x, ops.const(-2.0, "float32")), FLOATS, "float32"),
        (lambda ops, x: ops.floor(x), FLOATS, "float32"),
        (lambda ops, x: ops.square_root(x), FLOATS, "float32"),
        (lambda ops, x: ops.fma(x, x, ops.const(0.1, "float32")), FLOATS, "float32"),
        (lambda ops, x: ops.round_even(x), SMALL, "int32"),
        (lambda ops, x: ops.round_away(x), SMALL, "int32"),
        (lambda ops, x: ops.limited(x), FLOATS[~np.isnan(FLOATS)], "float32"),
        (lambda ops, x: ops.bits(x, "int32"), FLOATS, "int32"),
        (lambda ops, x: ops.cast(x, "float32"), INTS, "float32"),
        (lambda ops, x: ops.high_mul(x, ops.const(1_234_567_890)), INTS, "int32"),
        (lambda ops, x: ops.divide_by_pot(x, ops.const(7)), INTS[INTS > -(1 << 31)], "int32"),
        (lambda ops, x: ops.round_twice(x, ops.const(1_234_567_890), ops.const(5)), INTS, "int32"),
        (lambda ops, x: ops.shift_left(x, ops.const(3)), INTS, "int32"),
        (lambda ops, x: x >> ops.const(3), INTS, "int32"),
    ],
)
def test_an_operation_gives_the_bits_of_a_tensor_program(
    compute: Callable[..., Any], values: np.ndarray[Any, Any], result: str
) -> None:
    x = te.placeholder(values.shape, values.dtype.name, "x")
    y = te.compute(values.shape, lambda i: compute(TENSORS, x[i]), "y")
    program = tvm.tirx.build(te.create_prim_func([x, y]), target="llvm")
    found = tvm.runtime.tensor(np.zeros(values.shape, result))
    program(tvm.runtime.tensor(values), found)
    with np.errstate(all="ignore"):
        expected = np.asarray(compute(ARRAYS, values))
    assert expected.dtype == result
    is_nan = np.isnan(expected) if result == "float32" else np.zeros(values.shape, bool)
    np.testing.assert_array_equal(expected[~is_nan].view(np.int32), found.numpy()[~is_nan].view(np.int32))
