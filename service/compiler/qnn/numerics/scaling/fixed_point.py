"""Fixed-point scaling as in gemmlowp and TFLite: a real multiplier is a 31-bit significand and a power of two.

Source: tensorflow/lite/kernels/internal/{quantization_util.cc,common.h} and gemmlowp/fixedpoint/fixedpoint.h, built
with two roundings (TFLITE_SINGLE_ROUNDING is off in LiteRT's wheels).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from service.compiler.qnn.numerics.scaling import rounding
from service.core.models.arrays import Array

_PART_ELEMENTS = 1 << 14

# The factor of exp for each bit of its argument: exp(-2**exponent) in Q0.31 (exp_on_negative_values).
EXP_BARREL_SHIFTER = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)


@lru_cache(maxsize=1 << 16)
def quantize_multiplier(real: float) -> tuple[int, int]:
    """TFLite's QuantizeMultiplier: real ~= significand * 2**(shift - 31), significand in [2**30, 2**31) or 0.

    `real` is not negative, and halves round away from zero. The shift is the one that the machine applies
    (`machine_shift`).
    """
    significand, shift = exact_multiplier(real)
    return significand, machine_shift(shift)


def machine_shift(shift: int) -> int:
    """Returns the number of bits by which MultiplyByQuantizedMultiplier shifts for `shift`: `1 << shift` of an int32
    takes the count modulo 32.

    C++ leaves counts of 32 and more undefined. The instructions of x86-64 and AArch64 to which LiteRT's kernels are
    compiled take the count modulo 32 (measured on LiteRT 2.3.0).
    """
    return shift % 32 if shift > 0 else shift


def exact_multiplier(real: float) -> tuple[int, int]:
    """Returns the result of TFLite's QuantizeMultiplier, with the shift that the file determines."""
    if real == 0:
        return 0, 0
    fraction, shift = math.frexp(real)
    significand = math.floor(fraction * (1 << 31) + 0.5)
    if significand == 1 << 31:
        significand, shift = significand // 2, shift + 1
    if shift < -31:
        return 0, 0
    return significand, shift


def quantize_multipliers(multipliers: Iterable[float]) -> tuple[Array, Array]:
    """Applies `quantize_multiplier` to each multiplier; returns significands and shifts, int32."""
    pairs = [quantize_multiplier(real) for real in multipliers]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int32)


def power_of_two(real: float) -> int | None:
    """TFLite's CheckedLog2 (kernels/internal/quantization_util.cc): log2 of a number that is nearly a power of two, or
    else None.
    """
    log2 = np.log(np.float32(real)) * (np.float32(1) / np.log(np.float32(2)))
    nearest = math.floor(log2 + 0.5)
    return nearest if abs(log2 - nearest) < 1e-3 else None


# --- int64 arrays that hold int32 values -----------------------------------------------------------------------------


def saturating_rounding_doubling_high_mul(a: Array, b: Array | int) -> Array:
    """gemmlowp: (2 * a * b) >> 32, rounded to nearest; the one overflow, min * min, saturates."""
    b = np.asarray(b, np.int64)
    product = a * b
    # gemmlowp adds 2**30, or 1 - 2**30 to a negative product, and C++ division truncates. Here the magnitude is
    # rounded, and then gets the product's sign.
    quotient = np.sign(product) * ((np.abs(product) + (1 << 30) - (product < 0)) >> 31)
    overflow = -(1 << 31)
    return np.where((a == b) & (a == overflow), (1 << 31) - 1, quotient) if (b == overflow).any() else quotient


def rounding_divide_by_pot(x: Array, exponent: Array | int) -> Array:
    """gemmlowp: x / 2**exponent, halves away from zero."""
    mask = (np.int64(1) << np.asarray(exponent, np.int64)) - 1
    if rounding.is_watched():
        rounding.report_ties((mask > 0) & ((x & mask) == (mask >> 1) + 1))
    threshold = (mask >> 1) + (x < 0)
    return np.asarray((x >> np.asarray(exponent, np.int64)) + ((x & mask) > threshold))


def machine_divide_by_pot(x: Array, exponent: Array | int) -> Array:
    """`rounding_divide_by_pot` for any exponent, including negative ones, as the machine computes it (`machine_shift`).

    gemmlowp's mask is the low half of `(1 << exponent) - 1`. The 64-bit shift of the mask takes its count modulo 64, so
    all bits of the mask are set from 32 on. The shift of the value takes its count modulo 32.
    """
    count = np.asarray(exponent, np.int64) & 63
    wrapped = (x >> (count & 31)) + (x > (x < 0) - 1)
    return np.where(count < 32, rounding_divide_by_pot(x, np.minimum(count, 31)), wrapped)


def rounding_divide_by_pot_up(x: Array, exponent: Array | int) -> Array:
    """x / 2**exponent, halves up: the rounding shift of vector instructions."""
    exponent = np.asarray(exponent, np.int64)
    return np.asarray((x + ((np.int64(1) << exponent) >> 1)) >> exponent)


def multiply_rounding_up(x: Array, significand: Array | int, shift: Array | int) -> Array:
    """`multiply_by_quantized_multiplier` as vector instructions compute it: halves round up both times."""
    shift = np.asarray(shift, np.int64)
    shifted = (x << np.maximum(shift, 0)).astype(np.int32).astype(np.int64)
    return rounding_divide_by_pot_up(saturating_rounding_doubling_high_mul(shifted, significand), np.maximum(-shift, 0))


def multiply_by_quantized_multiplier(x: Array, significand: Array | int, shift: Array | int) -> Array:
    """TFLite's MultiplyByQuantizedMultiplier: rounds twice. Takes one multiplier, or one for each index of the last
    axis.
    """
    shift = np.asarray(shift, np.int64)

    def scaled(part: Array) -> Array:
        shifted = (part << np.maximum(shift, 0)).astype(np.int32).astype(np.int64)
        high = saturating_rounding_doubling_high_mul(shifted, significand)
        return rounding_divide_by_pot(high, np.maximum(-shift, 0))

    return _in_parts(scaled, x)


def _in_parts(function: Callable[[Array], Array], x: Array) -> Array:
    """Returns `function(x)`, computed for a few rows at a time so that its intermediate arrays stay in the cache."""
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    height = max(1, _PART_ELEMENTS // max(1, rows.shape[1]))
    result = np.empty(rows.shape, np.int64)
    for first in range(0, len(rows), height):
        result[first : first + height] = function(rows[first : first + height])
    return result.reshape(x.shape)


def inverse_square_root(value: int) -> tuple[int, int]:
    """TFLite's GetInvSqrtQuantizedMultiplierExp (kernels/internal/common.h), with the sign of the shift reversed: 1 /
    sqrt(value) ~= significand * 2**(shift - 31), by Newton's iteration on a Q3.28 number. `value` is positive.
    """
    if value <= 1:
        return (1 << 31) - 1, 0
    shift = 11
    while value >= 1 << 29:
        value, shift = value // 4, shift + 1
    # how often the value is shifted by two bits, which gives a Q2.29 in [1 / 4, 1)
    pairs = (31 - value.bit_length()) // 2 - 1
    value, shift = value << (2 * pairs), shift - pairs
    half = ((value >> 1) + 1) >> 1
    x = 1 << 28

    def mul(a: int, b: int) -> int:
        return int(saturating_rounding_doubling_high_mul(np.array(a, np.int64), b))

    def rescaled(a: int, by: int) -> int:  # gemmlowp's Rescale to fewer integer bits: a shift that saturates
        return max(min(a << by, (1 << 31) - 1), -(1 << 31))

    for _ in range(5):
        cubed = rescaled(mul(mul(x, x), x), 6)
        x = rescaled(mul(_THREE_HALVES, x) - mul(half, cubed), 3)
    x = mul(x, _HALF_SQRT_2)
    if shift < 0:
        x, shift = x << -shift, 0
    return x, -shift


_THREE_HALVES = (1 << 28) + (1 << 27)  # Q3.28
_HALF_SQRT_2 = 1518500250  # Q0.31
