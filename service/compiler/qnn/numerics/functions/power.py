"""A power with a constant exponent that is defined bit by bit (`expressions.power`), in NumPy for the oracle, and its
formula.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.qnn.expressions import power
from service.compiler.qnn.expressions.ops import Value
from service.compiler.qnn.expressions.tensors import BoundOps
from service.compiler.qnn.numerics.registers import Bind, elementwise
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_F = np.float32
_DoubleWord = tuple[Array, Array]


class RealPower:
    """The formula of `qnn.real_power`."""

    summary = "x ** y of float32, by Eigen's polynomials: equal to ONNX Runtime's LRN, bit for bit"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        with np.errstate(all="ignore"):  # infinities and NaN are valid
            return evaluate(x, float(operation.attr("exponent")))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        exponent = float(operation.attr("exponent"))

        def express(bind: Bind, x: Value) -> Value:
            return power.power(BoundOps(bind=bind), bind(x, "float32"), exponent)

        return elementwise(builder, "real_power", express, [x], is_long=True, dtype="float32")


def evaluate(x: Array, exponent: float) -> Array:
    """Returns x**exponent of float32."""
    if power.is_squared(exponent):
        return _squared(x, int(exponent))
    result = _positive_power(np.abs(x), exponent)
    at_zero, at_infinity = (np.inf, 0) if exponent < 0 else (0, np.inf)
    special = [(x < 0, np.nan), (x == 0, at_zero), (np.isinf(x) & (x > 0), at_infinity), (np.isnan(x), np.nan)]
    for where, value in special:
        result = np.where(where, _F(value), result)
    return np.asarray(np.where(x == -np.inf, _F(at_infinity), result))


def _squared(x: Array, exponent: int) -> Array:
    factor, result = (_F(1) / x if exponent < 0 else x), np.ones_like(x)
    left = abs(exponent)
    while left:
        if left & 1:
            result = result * factor
        factor, left = factor * factor, left >> 1
    return result


def _positive_power(x: Array, exponent: float) -> Array:
    mantissa, shift = np.frexp(np.where(np.isfinite(x), x, _F(1)))
    is_low = mantissa < _F(power.ROOT_OF_HALF)
    mantissa, shift = np.where(is_low, mantissa * _F(2), mantissa), (shift - is_low).astype(_F)
    factor = np.full_like(x, exponent)
    logarithm = _wide_sum(_product(shift, factor), _wide_product(_logarithm(mantissa), factor))
    first = _round_away(logarithm[0])
    rest = (logarithm[0] - first) + logarithm[1]
    second = _round_away(rest)
    return _scale(_exponential(rest - second), (first + second).astype(np.int32))


def _logarithm(mantissa: Array) -> _DoubleWord:
    x = mantissa - _F(1)
    total = np.full_like(x, power.LOG2[0])
    for coefficient in power.LOG2[1:]:
        total = total * x + _F(coefficient)
    wide = _product(x, total)
    for value in power.LOG2_LAST:
        constant = np.full_like(x, value), np.full_like(x, value - float(_F(value)))
        wide = _wide_product(_wide_sum(constant, wide), x)
    return wide


def _exponential(x: Array) -> Array:
    high, low = _product(np.full_like(x, power.LN_2), x)
    whole = np.floor(high * _F(power.LOG2_E) + _F(0.5))
    rest = high
    for part in power.LN_2_PARTS:
        rest = whole * _F(part) + rest
    squared = rest * rest
    even, odd = (np.full_like(x, coefficients[0]) for coefficients in (power.EXP_EVEN, power.EXP_ODD))
    for coefficient in power.EXP_EVEN[1:]:
        even = squared * even + _F(coefficient)
    for coefficient in power.EXP_ODD[1:]:
        odd = squared * odd + _F(coefficient)
    total = squared * (rest * odd + even) + (rest + _F(1))
    return np.asarray(np.ldexp(total, whole.astype(np.int32)) * (_F(1) + low))


def _scale(x: Array, exponent: Array) -> Array:
    limited = np.clip(exponent, -power.MOST_SCALED, power.MOST_SCALED)
    quarter = limited >> 2
    for _ in range(3):
        x = np.ldexp(x, quarter)
    return np.asarray(np.ldexp(x, limited - 3 * quarter))


def _round_away(x: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x).astype(_F))


def _product(x: Array, y: Array) -> _DoubleWord:
    high = x * y
    return high, (x.astype(np.float64) * y - high).astype(_F)  # exact in float64


def _sum(x: Array, y: Array) -> _DoubleWord:
    high = x + y
    return high, y - (high - x)


def _wide_sum(x: _DoubleWord, y: _DoubleWord) -> _DoubleWord:
    high, low = _sum(x[0], y[0])
    return _sum(high, (y[1] + low) + x[1])


def _wide_product(x: _DoubleWord, y: Array) -> _DoubleWord:
    high, low = _product(x[0], y)
    total, rest = _sum(high, x[1] * y)
    return _sum(total, rest + low)
