"""The fused multiply-add of float32: a * b + c, rounded once."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from service.compiler.qnn.numerics.formula import Array, Scalar

Operand = Array | np.float32 | float


def fma(a: Operand, b: Operand, c: Operand) -> Array:
    """float32(a * b + c), for float32 operands.

    The product is exact in float64. Their sum is rounded there to odd (what is lost sets the last bit), from where
    rounding to float32 is as if nothing had been lost (Boldo and Melquiond 2008, theorem 1: 53 >= 24 + 2 bits).
    """
    product, addend = np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    rest = total - product
    lost = (product - (total - rest)) + (addend - rest)  # exact (Knuth's two-sum)
    even = (total.view(np.int64) & 1) == 0
    towards = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    return np.where((lost != 0) & even, towards, total).astype(np.float32)


def lowered_fma(a: Scalar, b: Scalar, c: Scalar, lanes: int = 1) -> Scalar:
    """`fma` in tensor IR, on vectors of `lanes`."""
    return tirx.call_llvm_pure_intrin(f"float32x{lanes}" if lanes > 1 else "float32", "llvm.fma", a, b, c)
