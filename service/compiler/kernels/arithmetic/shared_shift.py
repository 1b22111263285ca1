"""Replaces TFLite's addition of two 8-bit tensors by a simpler formula, if both are proven to be equal.

`FixedPointAdd` rounds up to six times. The simpler formula is floor((a * ma + b * mb + bias) / 2**shift). There are
only 256 * 256 pairs of operands (a, b), so both formulas are compared for all of them. For given multipliers ma and mb,
each pair bounds the bias from below, unless its result is clamped to the minimum, and from above, unless its result is
clamped to the maximum. Any bias within the bounds of all pairs gives equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import Bounds
from service.compiler.qnn.expressions.sums import Addition, FixedPointSum, SharedShiftSum
from service.compiler.qnn.numerics.scaling import fixed_point
from service.core.models.arrays import Array

# The multipliers to try, as differences from the exact multipliers rounded to integers, smallest differences first.
_FARTHEST = 8
_MOVES = sorted(product(range(-_FARTHEST, _FARTHEST + 1), repeat=2), key=lambda move: max(map(abs, move)))
_LEAST_SHIFT, _LARGEST_SHIFT = 16, 30


@dataclass(frozen=True)
class _Demands:
    """Constraints on the bias, all from below or all from above. Each array is `[pairs]`, with one element per
    constraint.

    The bias must be at least (or less than) bound - value * ma - residual * mb.
    """

    value: Array
    residual: Array
    bound: Array

    def biases(self, factors: list[int]) -> Array:
        return np.asarray(self.bound - self.value * factors[0] - self.residual * factors[1])

    def near(self, biases: Array, extreme: int) -> _Demands:
        """Returns the constraints that can become the strictest one if the multipliers change by any of `_MOVES`.

        Changing both multipliers by 1 changes a constraint by at most 510.
        """
        near = np.abs(biases - extreme) <= 2 * _FARTHEST * 510
        return _Demands(self.value[near], self.residual[near], self.bound[near])


def simplified(addition: Addition, zero_point: int, out: Bounds) -> Addition:
    """Returns a `SharedShiftSum` that equals `addition` for all pairs of stored operands, or `addition` itself if there
    is none.

    Args:
        zero_point: the zero point of the value, as stored.
    """
    if not isinstance(addition, FixedPointSum) or addition.subtracts:
        return addition
    return _shared_shift_sum(addition, (zero_point, addition.residual_zero_point), out) or addition


def _shared_shift_sum(addition: FixedPointSum, zero_points: tuple[int, int], out: Bounds) -> SharedShiftSum | None:
    left_shift = addition.left_shift
    multipliers = addition.multiplier, addition.residual_multiplier, addition.out_multiplier
    operands = [np.arange(256) - zero_point for zero_point in zero_points]
    terms = [
        fixed_point.multiply_by_quantized_multiplier(operand << left_shift, *multiplier)
        for operand, multiplier in zip(operands, multipliers, strict=False)
    ]
    total = fixed_point.multiply_by_quantized_multiplier(terms[0][:, None] + terms[1], *multipliers[2])
    low, high = out.low - out.zero_point, out.high - out.zero_point
    wanted = np.clip(total, low, high)
    above, below = (np.nonzero(free) for free in (wanted > low, wanted < high))
    if not above[0].size or not below[0].size:
        return None
    # Residuals are stored values here, without their zero point subtracted, as in the kernels.
    least = _Demands(operands[0][above[0]], above[1], wanted[above])
    most = _Demands(operands[0][below[0]], below[1], wanted[below] + 1)
    scale = _ratio(multipliers[2]) * 2.0**left_shift
    ratios = [_ratio(multiplier) * scale for multiplier in multipliers[:2]]
    # The sum of the products must fit int32, even if the code subtracts a zero point only afterwards.
    largest_shift = min(_LARGEST_SHIFT, 31 - int(np.ceil(np.log2(255 * sum(ratios) + 1))))
    for shift in range(largest_shift, _LEAST_SHIFT - 1, -1):
        found = _search(least, most, ratios, shift)
        if found is not None and _fits(found, int(operands[0][0])):
            return found
    return None


def _search(least: _Demands, most: _Demands, ratios: list[float], shift: int) -> SharedShiftSum | None:
    nearest = [round(ratio * (1 << shift)) for ratio in ratios]
    least, most = (_Demands(each.value, each.residual, each.bound << shift) for each in (least, most))
    lows, highs = least.biases(nearest), most.biases(nearest)
    least, most = least.near(lows, lows.max()), most.near(highs, highs.min())
    for moves in _MOVES:
        factors = [factor + move for factor, move in zip(nearest, moves, strict=True)]
        low, high = int(least.biases(factors).max()), int(most.biases(factors).min())
        if low < high:
            return SharedShiftSum(factors[0], factors[1], (low + high) // 2, shift)
    return None


def _fits(found: SharedShiftSum, least_value: int) -> bool:
    """Returns true if no intermediate value overflows int32, whether the zero point is subtracted first or with the
    bias.
    """
    values, residuals = np.array([least_value, least_value + 255]), np.array([0, 255])
    products = values[:, None] * found.multiplier + residuals * found.residual_multiplier
    stored_bias = found.bias + least_value * found.multiplier
    largest = max(np.abs(products + found.bias).max(), abs(found.bias), abs(stored_bias))
    return bool(largest < 1 << 31)


def _ratio(multiplier: tuple[int, int]) -> float:
    significand, shift = multiplier
    return significand * 2.0 ** (shift - 31)
