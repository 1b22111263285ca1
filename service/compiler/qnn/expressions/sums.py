"""Sums and differences of two stored values, with one class for each way of rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import smallest_beyond

Multiplier = tuple[int, int]  # significand, shift


class Addition(Protocol):
    """Adds the second operand, which is called the residual, to the first one, which is called the value."""

    @property
    def parameters(self) -> tuple[int, ...]:
        """The int32 numbers that the code reads. Floats are given as bits."""

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        """Returns the sum minus the output's zero point, not yet clamped.

        Args:
            value: the value minus its zero point.
            residual: the residual as stored.
        """


@dataclass(frozen=True)
class SharedShiftSum:
    """Multiplies each operand by an integer, adds both and a bias, and shifts the sum once."""

    multiplier: int
    residual_multiplier: int
    bias: int
    shift: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.multiplier, self.residual_multiplier, self.bias, self.shift

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        multiplier, residual_multiplier, bias, shift = parameters
        return ops.keep((value * multiplier + residual * residual_multiplier + bias) >> shift)


@dataclass(frozen=True)
class AwaySum(SharedShiftSum):
    """Like `SharedShiftSum`, but halves are rounded away from zero. The bias contains no half."""

    @property
    def parameters(self) -> tuple[int, ...]:
        return *super().parameters, 1 << (self.shift - 1)

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        multiplier, residual_multiplier, bias, shift, half = parameters
        total = ops.keep(value * multiplier + residual * residual_multiplier + bias)
        return ops.keep((total + half + (total >> ops.const(31))) >> shift)


@dataclass(frozen=True)
class ScaledAddition:
    """Multiplies the first operand by its factor, adds the second one by a fused multiply-add, and rounds to even.

    The factors are float32, and so small that the sum always fits int32, unless `limited` is true.
    """

    factor: float
    residual_factor: float
    residual_zero_point: int
    residual_is_first: bool
    limited: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        return *as_bits(self.factor, self.residual_factor), self.residual_zero_point

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        own, of_residual, zero_point = parameters
        first, second = (value, own), (residual - zero_point, of_residual)
        if self.residual_is_first:
            first, second = second, first
        (a, a_factor), (b, b_factor) = (
            (ops.cast(operand, "float32"), ops.bits(factor, "float32")) for operand, factor in (first, second)
        )
        total = ops.keep(ops.fma(b, b_factor, ops.keep(a * a_factor, "float32")), "float32")
        return ops.keep(ops.round_even(ops.limited(total) if self.limited else total))


@dataclass(frozen=True)
class FixedPointSum:
    """Adds both operands in a common unit, 2**-left_shift times twice the larger scale. Each product is rounded twice.

    8-bit operands minus their zero points are below 2**9. After the shift by 20 bits and the scaling, the operands and
    their sum are below 2**30.

    Attributes:
        subtracts: true to subtract the residual instead.
    """

    multiplier: Multiplier
    residual_multiplier: Multiplier
    residual_zero_point: int
    out_multiplier: Multiplier
    subtracts: bool = False
    left_shift: int = 20

    _HALF = (1 << 30, 0)  # the multiplier 1/2: the operand is shifted by one bit less instead of multiplied

    @property
    def parameters(self) -> tuple[int, ...]:
        pairs = (self.multiplier, self.residual_multiplier, self.out_multiplier)
        return (self.residual_zero_point, *(part for significand, shift in pairs for part in (significand, -shift)))

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        zero_point, *rest = parameters
        terms = [
            self._scaled(ops, operand, multiplier, rest[2 * index], rest[2 * index + 1])
            for index, (operand, multiplier) in enumerate(
                ((value, self.multiplier), (residual - zero_point, self.residual_multiplier))
            )
        ]
        total = ops.keep(terms[0] - terms[1] if self.subtracts else terms[0] + terms[1])
        return self._round_twice(ops, total, self.out_multiplier, rest[4], rest[5])

    def _scaled(self, ops: Ops, operand: Value, multiplier: Multiplier, significand: Value, right: Value) -> Value:
        if multiplier == self._HALF:
            return operand << ops.const(self.left_shift - 1)
        shifted = ops.keep(operand << ops.const(self.left_shift))
        return self._round_twice(ops, shifted, multiplier, significand, right)

    @staticmethod
    def _round_twice(ops: Ops, x: Value, multiplier: Multiplier, significand: Value, right: Value) -> Value:
        shift = multiplier[1]
        if shift < 0:
            return ops.round_twice(x, significand, right)
        if shift > 0:
            x = ops.keep(ops.shift_left(x, ops.const(0) - right))
        return ops.high_mul(x, significand)


@dataclass(frozen=True)
class FloatSum:
    """Dequantizes both operands by fused multiply-adds, adds them, multiplies by 1 / s, and rounds to even.

    Attributes:
        zero_point: the number that is added to the value, so that it is the one that the formula multiplies.
        residual_bias: the number that is subtracted from the residual for the same purpose.
        terms: the scale and offset of the value, and those of the residual.
        factor: 1 / s.
        limited: true if the result may exceed int32.
    """

    zero_point: int
    residual_bias: int
    terms: tuple[float, float, float, float]
    factor: float
    limited: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.zero_point, self.residual_bias, *as_bits(*self.terms, self.factor)

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        zero_point, residual_bias, *numbers = parameters
        scale, offset, residual_scale, residual_offset, factor = (ops.bits(number, "float32") for number in numbers)
        total = ops.keep(ops.fma(ops.cast(value + zero_point, "float32"), scale, offset), "float32") + ops.keep(
            ops.fma(ops.cast(residual - residual_bias, "float32"), residual_scale, residual_offset), "float32"
        )
        scaled = ops.keep(total, "float32") * factor
        return ops.keep(ops.round_even(ops.limited(scaled) if self.limited else scaled))


@dataclass(frozen=True)
class FusedSum:
    """Adds both of the model's operands by fused multiply-adds, and rounds to even.

    Attributes:
        ratios: the ratios s_in / s of the value and of the residual.
        fixed: the constant term, which contains the zero points.
        zero_points: the zero points of the value and of the output, as the model stores them.
        bias: the number that is added to a residual to store it.
        residual_last: true if the residual is added last.
        overflows: true if a sum may exceed int32. Such a sum becomes the smallest value.
    """

    ratios: tuple[float, float]
    fixed: float
    zero_points: tuple[int, int]
    bias: int
    residual_last: bool
    overflows: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        return *self.zero_points, *as_bits(*self.ratios, self.fixed)

    def express(self, ops: Ops, value: Value, residual: Value, parameters: Sequence[Value]) -> Value:
        zero_point, out_zero_point, *floats = parameters
        ratio, of_residual, fixed = (ops.bits(number, "float32") for number in floats)
        stored = residual - ops.const(self.bias) if self.bias else residual
        terms = [
            (ops.cast(ops.keep(value + zero_point), "float32"), ratio),
            (ops.cast(ops.keep(stored), "float32"), of_residual),
        ]
        total = fixed
        for operand, factor in terms if self.residual_last else reversed(terms):
            total = ops.keep(ops.fma(operand, factor, total), "float32")
        return ops.keep(ops.round_even(smallest_beyond(ops, total) if self.overflows else total) - out_zero_point)


def as_bits(*values: float) -> tuple[int, ...]:
    """Returns the bits of float32 values, as int32."""
    with np.errstate(over="ignore"):
        return tuple(int(value) for value in np.array(values, np.float32).view(np.int32))
