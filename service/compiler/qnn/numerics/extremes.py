"""The larger and the smaller of two numbers in tensor IR. If either is NaN, the result is NaN, as in NumPy and IEEE
754-2019.

TVM's own `max` and `min` compare and select. So TVM's operators drop a NaN in the first operand.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

Scalar = Any


def larger(a: Scalar, b: Scalar) -> Scalar:
    """Returns the larger of two scalars or vectors of one type."""
    return _of_reals("llvm.maximum", a, b) if _is_real(a) else tirx.max(a, b)


def smaller(a: Scalar, b: Scalar) -> Scalar:
    """Returns the smaller of two scalars or vectors of one type."""
    return _of_reals("llvm.minimum", a, b) if _is_real(a) else tirx.min(a, b)


def _is_real(value: Scalar) -> bool:
    return str(value.ty.dtype).startswith("float")


def _of_reals(name: str, a: Scalar, b: Scalar) -> Scalar:
    return tirx.call_llvm_pure_intrin(str(a.ty.dtype), name, a, b)
