"""The logistic function and tanh of 16-bit fixed-point numbers, as LiteRT's integer LSTM computes them.

Transcribed from gemmlowp/fixedpoint/fixedpoint.h for `FixedPoint<std::int16_t, n>`: n bits before the binary point and
15 - n after it. Arrays are int64 that hold int16 values; `_wrapped` wraps around wherever C++ does.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from service.compiler.qnn.numerics.scaling.fixed_point import EXP_BARREL_SHIFTER, rounding_divide_by_pot
from service.core.models.arrays import Array

_MIN, _MAX = -(1 << 15), (1 << 15) - 1
ONE_Q0, ONE_Q2 = _MAX, 1 << 13


def logistic(x: Array) -> Array:
    """Returns 1 / (1 + exp(-x)) in Q0.15, of numbers in Q3.12 (PortableApplySigmoid in
    reference/portable_tensor_utils.cc).
    """
    positive = _over_one_plus(_exp_on_negative_values(-np.abs(x), 3), 0)
    result = np.where(x > 0, positive, ONE_Q0 - positive)
    return np.where(x == 0, 1 << 14, result)


def tanh(x: Array, integer_bits: int) -> Array:
    """Returns tanh(x) in Q0.15, of numbers with `integer_bits` (PortableApplyTanh in the same file)."""
    # exp(-2 |x|), because one more integer bit doubles the number that the same bits represent
    negative = _exp_on_negative_values(-np.abs(x), integer_bits + 1)
    magnitude = _over_one_plus(negative, ONE_Q2)
    return np.where(x == 0, 0, np.where(x < 0, _wrapped(-magnitude), magnitude))


@cache
def table(function: str, integer_bits: int) -> Array:
    """Returns `[65536] int16`: `logistic` or `tanh` of every number, the smallest first."""
    x = np.arange(_MIN, _MAX + 1, dtype=np.int64)
    values = logistic(x) if function == "logistic" else tanh(x, integer_bits)
    return np.asarray(values.astype(np.int16))


def _exp_on_negative_values(a: Array, integer_bits: int) -> Array:
    """Returns exp(a) in Q0.15, for numbers that are not positive."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    rest = (a & (quarter - 1)) - quarter
    result = _exp_between_minus_quarter_and_zero(_saturated(rest << integer_bits))
    remainder = rest - a
    for exponent, multiplier in EXP_BARREL_SHIFTER:
        if integer_bits > exponent:
            bit = remainder & (1 << (fraction_bits + exponent))
            result = np.where(bit != 0, _product(result, constant(multiplier)), result)
    if integer_bits > 5:
        result = np.where(a < -(1 << (20 - integer_bits)), 0, result)
    return np.where(a == 0, ONE_Q0, result)


def _exp_between_minus_quarter_and_zero(a: Array) -> Array:
    """Computes exp by a Taylor expansion around -1/8, in Q0.15."""
    term, third = constant(1895147668), constant(715827883)
    x = a + (1 << 12)
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    cubes = _product(rounding_divide_by_pot(x4, 2) + x3, third)
    series = rounding_divide_by_pot(cubes + x2, 1)
    return _saturated(term + _product(np.asarray(term), x + series))


def _over_one_plus(a: Array, minus: int) -> Array:
    """Returns 2 / (1 + a) less `minus` (in Q2.13), halved if `minus` is 0. The result and `a` are in Q0.15.

    `one_over_one_plus_x_for_x_in_0_1` and `one_minus_x_over_one_plus_x_for_x_in_0_1`: Newton's iteration in Q2.13.
    """
    total = a + ONE_Q0
    half = (total + 1) >> 1  # RoundingHalfSum of numbers that are not negative
    x = constant(1515870810) + _product(half, constant(-1010580540))
    for _ in range(3):
        error = ONE_Q2 - _product(half, x)
        x = x + _saturated(_product(x, error) << 2)
    return _saturated(x << 1 if minus == 0 else (x - minus) << 2)


def constant(value: int) -> int:
    """Converts a 32-bit constant to 16 bits: the upper half, rounded."""
    return int(rounding_divide_by_pot(np.array(value, np.int64), 16))


def _product(a: Array, b: Array | int) -> Array:
    """SaturatingRoundingDoublingHighMul of 16 bits: halves away from zero."""
    product = a * np.asarray(b, np.int64)
    quotient = np.sign(product) * ((np.abs(product) + (1 << 14) - (product < 0)) >> 15)
    return np.asarray(np.minimum(quotient, _MAX))


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, _MIN, _MAX))


def _wrapped(x: Array) -> Array:
    return np.asarray(x.astype(np.int16).astype(np.int64))
