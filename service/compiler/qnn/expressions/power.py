"""A power with a constant exponent, written over the scalar operations: Eigen's packet function `pow`, step by step
(`Eigen/src/Core/arch/Default/GenericPacketMathPow.h` and `GenericPacketMathDoubleWord.h`), on SSE without fused
multiply-adds. Equals ONNX Runtime 1.31.1's LRN bit for bit.

x**y is 2**(y * log2(x)). The logarithm and its product with the exponent are sums of two float32 values (double words),
of which the second holds the rounding error of the first. `numerics.functions.power` has the same function in NumPy,
for the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from service.compiler.qnn.expressions.ops import Ops, Value

LEAST_SQUARED, MOST_SQUARED = -3, 7  # the range of integer exponents for which Eigen multiplies
MOST_EXPONENT = float(1 << 20)  # so that exponent * log2(x) fits int32
ROOT_OF_HALF = 0.70710678118654752440
SMALLEST_NORMAL, SUBNORMAL_SHIFT = 2.0**-126, 24
# log2(1 + x) / x, highest power first; the last two coefficients are double words.
LOG2 = (
    9.7010828554630279541015625e-02,
    -1.6896486282348632812500000e-01,
    1.7200836539268493652343750e-01,
    -1.7892272770404815673828125e-01,
    2.0505344867706298828125000e-01,
    -2.4046677350997924804687500e-01,
    2.8857553005218505859375000e-01,
    -3.6067414283752441406250000e-01,
    4.8089790344238281250000000e-01,
)
LOG2_LAST = (
    -7.2134751588268664068692714863573201000690460205078125e-01,
    1.442695041742110273474963832995854318141937255859375,
)
LN_2, LOG2_E = math.log(2), 1.44269504088896341
LN_2_PARTS = (-0.693359375, 2.12194440e-4)  # two parts of -log(2)
EXP_EVEN = (1.37449637986719608306884765625e-3, 4.166965186595916748046875e-2, 0.49999988079071044921875)
EXP_ODD = (8.36894474923610687255859375e-3, 0.16666518151760101318359375)
MOST_SCALED = 278  # powers of two that scale the result are limited to this
_FRACTION, _HALF_BITS, _BIAS = 0x7FFFFF, 0x3F000000, 127

DoubleWord = tuple[Value, Value]


def is_squared(exponent: float) -> bool:
    """Returns true if Eigen computes the power by repeated squaring."""
    return exponent == round(exponent) and LEAST_SQUARED <= exponent <= MOST_SQUARED


def is_supported(exponent: float) -> bool:
    """Returns true if `power` computes powers with this exponent, which has to be a float32."""
    if not abs(exponent) < MOST_EXPONENT or float(np.float32(exponent)) != exponent:
        return False
    return is_squared(exponent) or exponent % 1 != 0


def power(ops: Ops, x: Value, exponent: float) -> Value:
    """Returns x**exponent. `x` is used more than once.

    Args:
        exponent: a number for which `is_supported` returns true.
    """
    if is_squared(exponent):
        return _squared(ops, x, int(exponent))
    size = _keep(ops, ops.magnitude(x))
    result = _keep(ops, _positive_power(ops, size, exponent))
    zero, infinity = _const(ops, 0.0), _const(ops, math.inf)
    at_zero, at_infinity = (infinity, zero) if exponent < 0 else (zero, infinity)
    result = ops.select(x < zero, _const(ops, math.nan), _keep(ops, result))
    result = ops.select(ops.equal(x, zero), at_zero, _keep(ops, result))
    not_finite = ops.select(ops.equal(size, infinity), at_infinity, x)  # infinity, or NaN
    return ops.select(size < infinity, _keep(ops, result), _keep(ops, not_finite))


def _squared(ops: Ops, x: Value, exponent: int) -> Value:
    """Returns x**exponent by repeated squaring, of the reciprocal if the exponent is negative."""
    if exponent == 0:
        return _const(ops, 1.0)
    factor, result, left = x if exponent > 0 else _keep(ops, _const(ops, 1.0) / x), _const(ops, 1.0), abs(exponent)
    while left > 1:
        if left % 2:
            result = _keep(ops, result * factor)
        factor = _keep(ops, factor * factor)
        left //= 2
    return result * factor


def _positive_power(ops: Ops, x: Value, exponent: float) -> Value:
    """Returns x**exponent for finite x above zero."""
    shift, mantissa = _split_exponent(ops, x)
    factor = _const(ops, exponent)
    whole = _product(ops, shift, factor)
    logarithm = _wide_sum(ops, whole, _wide_product(ops, _logarithm(ops, mantissa), factor))
    first = ops.keep(ops.round_away(logarithm[0]))
    rest = _keep(ops, logarithm[0] - ops.cast(first, "float32"))
    rest = _keep(ops, rest + logarithm[1])
    second = ops.keep(ops.round_away(rest))
    rest = _keep(ops, rest - ops.cast(second, "float32"))
    return _scale(ops, _exponential(ops, rest), ops.keep(first + second))


def _split_exponent(ops: Ops, x: Value) -> tuple[Value, Value]:
    """Returns e and m with x = m * 2**e and m from sqrt(1/2) to sqrt(2)."""
    is_subnormal = x < _const(ops, SMALLEST_NORMAL)
    normal = ops.select(is_subnormal, _keep(ops, x * _const(ops, 2.0**SUBNORMAL_SHIFT)), x)
    bits = ops.keep(ops.bits(_keep(ops, normal), "int32"))
    less = ops.select(is_subnormal, ops.const(_BIAS - 1 + SUBNORMAL_SHIFT), ops.const(_BIAS - 1))
    exponent = _keep(ops, ops.cast((bits >> ops.const(23)) - less, "float32"))
    mantissa = _keep(ops, ops.bits((bits & ops.const(_FRACTION)) + ops.const(_HALF_BITS), "float32"))
    is_low = mantissa < _const(ops, ROOT_OF_HALF)
    doubled, lowered = _keep(ops, mantissa + mantissa), _keep(ops, exponent - _const(ops, 1.0))
    return _keep(ops, ops.select(is_low, lowered, exponent)), _keep(ops, ops.select(is_low, doubled, mantissa))


def _logarithm(ops: Ops, mantissa: Value) -> DoubleWord:
    """Returns log2 of a value from sqrt(1/2) to sqrt(2)."""
    x = _keep(ops, mantissa - _const(ops, 1.0))
    first, *others = LOG2
    total = _const(ops, first)
    for coefficient in others:
        total = _keep(ops, _keep(ops, total * x) + _const(ops, coefficient))
    wide = _product(ops, x, total)
    for value in LOG2_LAST:
        high = float(np.float32(value))
        constant = _const(ops, high), _const(ops, value - high)
        wide = _wide_product(ops, _wide_sum(ops, constant, wide), x)
    return wide


def _exponential(ops: Ops, x: Value) -> Value:
    """Returns 2**x for small x: e**(x * log(2)), corrected by the rounding error of that product."""
    high, low = _product(ops, _const(ops, LN_2), x)
    whole = _keep(ops, ops.floor(_keep(ops, _keep(ops, high * _const(ops, LOG2_E)) + _const(ops, 0.5))))
    rest = high
    for part in LN_2_PARTS:
        rest = _keep(ops, _keep(ops, whole * _const(ops, part)) + rest)
    squared = _keep(ops, rest * rest)
    even, odd = _polynomial(ops, squared, EXP_EVEN), _polynomial(ops, squared, EXP_ODD)
    total = _keep(ops, _keep(ops, rest * odd) + even)
    total = _keep(ops, _keep(ops, squared * total) + _keep(ops, rest + _const(ops, 1.0)))
    grown = _keep(ops, total * _power_of_two(ops, ops.cast(whole, "int32")))
    return _keep(ops, grown * _keep(ops, _const(ops, 1.0) + low))


def _scale(ops: Ops, x: Value, exponent: Value) -> Value:
    """Returns x * 2**exponent, as four products, so that large and subnormal results are reached in steps."""
    limited = ops.keep(ops.min(ops.max(exponent, ops.const(-MOST_SCALED)), ops.const(MOST_SCALED)))
    quarter = ops.keep(limited >> ops.const(2))
    factor = _keep(ops, _power_of_two(ops, quarter))
    for _ in range(3):
        x = _keep(ops, x * factor)
    return x * _power_of_two(ops, limited - ops.const(3) * quarter)


def _product(ops: Ops, x: Value, y: Value) -> DoubleWord:
    """Returns x * y exactly: the rounded product, and its rounding error."""
    high = _keep(ops, x * y)
    return high, _keep(ops, ops.fma(x, y, _const(ops, 0.0) - high))


def _sum(ops: Ops, x: Value, y: Value) -> DoubleWord:
    """Returns x + y exactly if |x| >= |y|: the rounded sum, and its rounding error."""
    high = _keep(ops, x + y)
    return high, _keep(ops, y - _keep(ops, high - x))


def _wide_sum(ops: Ops, x: DoubleWord, y: DoubleWord) -> DoubleWord:
    high, low = _sum(ops, x[0], y[0])
    return _sum(ops, high, _keep(ops, _keep(ops, y[1] + low) + x[1]))


def _wide_product(ops: Ops, x: DoubleWord, y: Value) -> DoubleWord:
    high, low = _product(ops, x[0], y)
    total, rest = _sum(ops, high, _keep(ops, x[1] * y))
    return _sum(ops, total, _keep(ops, rest + low))


def _polynomial(ops: Ops, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluates a polynomial, highest power first. Each step rounds twice."""
    total, *rest = (_const(ops, value) for value in coefficients)
    for coefficient in rest:
        total = _keep(ops, _keep(ops, total * x) + coefficient)
    return total


def _power_of_two(ops: Ops, exponent: Value) -> Value:
    return ops.bits((exponent + ops.const(_BIAS)) << ops.const(23), "float32")


def _keep(ops: Ops, x: Value) -> Value:
    return ops.keep(x, "float32")


def _const(ops: Ops, value: float) -> Value:
    return ops.const(value, "float32")
