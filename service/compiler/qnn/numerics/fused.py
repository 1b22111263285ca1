"""The fused multiply-add of float32: a * b + c, rounded once; and sums of products by nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tvm import tirx

from service.compiler.qnn.numerics.formula import Array, Scalar

Operand = Array | np.float32 | float

_LEAST_NORMAL = 2.0**-126
_TIE = np.int64(-1 << 63)  # the low 29 bits of what lies between two float32 values, moved to the top


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


def sum_of_products(shape: tuple[int, ...], factors: Iterable[tuple[Array, Array]], *, coarse: bool) -> Array:
    """fma(a, b, …) for each of `factors` in turn, from 0 on: float32 of `shape`.

    Equal to `fma`, at a quarter of its cost. A sum that is rounded to float64 first and then to float32 comes out as if
    it had been rounded once, unless the float64 lies halfway between two float32 values: rounding is monotonic and
    leaves what is halfway as it is, so that any other float64 lies on the same side of every halfway point as the sum
    itself. The values halfway between normal ones, or beyond the largest, have 25 bits, of which the last is set: the
    low 29 bits of the float64 are 1 and zeros. Those few are computed again. Between subnormal ones other bits count;
    there either float64 loses nothing (`coarse`), or all are computed again.

    Args:
        factors: of float64, as float32 holds them; they broadcast to `shape`. Blocks of some thousand elements stay in
            the cache.
        coarse: `products_are_coarse` of all factors.
    """
    total, product = np.zeros(shape), np.empty(shape)
    result, marks = np.zeros(shape, np.float32), np.empty(shape, np.int64)
    bits = product.view(np.int64)
    with np.errstate(all="ignore"):  # real values may be infinite
        for a, b in factors:
            np.multiply(a, b, out=product)
            np.add(product, total, out=product)
            np.left_shift(bits, 35, out=marks)
            np.copyto(result, product, casting="same_kind")
            if not coarse or marks.min(initial=0) == _TIE:
                near = marks == _TIE
                if not coarse:
                    near |= (np.abs(product) < _LEAST_NORMAL) & (product != 0)
                wide = np.broadcast_to(a, shape)[near], np.broadcast_to(b, shape)[near]
                result[near] = fma(*wide, total[near])
            np.copyto(total, result)
    return result


def products_are_coarse(a: Array, b: Array) -> bool:
    """Whether sums of products of these float32 values are exact in float64 where float32 has subnormal values.

    Values are multiples of their last bit: of 2**(e - 23) where 2**e is the smallest magnitude that is not 0. Products,
    and with them all sums, are multiples of the product of both. Of multiples of 2**-179, all below 2**-126 fit the 53
    bits of a float64.
    """
    least = [np.fmin.reduce(np.abs(x[x != 0]), axis=None, initial=np.float32(1)) for x in (a, b)]
    return sum(int(np.frexp(value)[1]) - 1 for value in least) >= 2 * 23 - 179


def lowered_fma(a: Scalar, b: Scalar, c: Scalar, lanes: int = 1) -> Scalar:
    """`fma` in tensor IR, on vectors of `lanes`."""
    return tirx.call_llvm_pure_intrin(f"float32x{lanes}" if lanes > 1 else "float32", "llvm.fma", a, b, c)
