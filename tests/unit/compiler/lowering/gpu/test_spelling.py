"""Numbers are printed as CUDA C++ constants of the right type."""

from __future__ import annotations

import pytest

from service.compiler.lowering.gpu.spelling import constant


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-(1 << 63), "int64", "i64(-9223372036854775807 - 1)"),
        ((1 << 64) - 1, "uint64", "u64(18446744073709551615u)"),
        (-128, "int8", "i8(-128)"),
        (0.1, "float32", "0x1.999999999999ap-4f"),
        (float("inf"), "float32", "static_cast<float>(__int_as_float(static_cast<i32>(0x7f800000u)))"),
        (1, "bool", "true"),
    ],
)
def test_constants(value: float, dtype: str, text: str) -> None:
    assert constant(value, dtype) == text
