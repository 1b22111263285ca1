"""Conversions between float32 values and stored values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.qnn.expressions.ops import LARGEST, Ops, Value
from service.compiler.qnn.expressions.sums import as_bits

FAR = LARGEST  # beyond all stored values
_ROUNDING = 1.5 * 2**23  # added to a small float32, gives a sum whose lowest bits are the value rounded to even
_ROUNDING_BITS = int(np.float32(_ROUNDING).view(np.int32))


@dataclass(frozen=True)
class Quantization:
    """Converts float32 to stored values.

    Attributes:
        factor: the number by which values are multiplied, or divided if `divides`.
        least, largest: scaled values are clamped to this range before they are rounded.
        zero_point, low, high: the zero point and the bounds of the result, as stored.
        first_zero_point: the part of the zero point that a fused multiply-add adds before rounding; None if the whole
            zero point is added after rounding.
        divides: true to divide by the factor instead of multiplying.
        away: true to round halves away from zero, false to round them to even.
        nan_is_low: true if NaN becomes the lowest value, false if it becomes the highest.
        limit: scaled values of at least `limit` or below `-limit`, and NaN, become `overflow`. None if the mode clamps
            such values instead.
        overflow: the value that replaces these scaled values. It is below `least` or above `largest`.
    """

    factor: float
    least: float
    largest: float
    zero_point: int
    low: int
    high: int
    first_zero_point: int | None = None
    divides: bool = False
    away: bool = False
    nan_is_low: bool = False
    limit: float | None = None
    overflow: float = 0.0

    @property
    def numbers(self) -> tuple[int, ...]:
        """The int32 numbers that the code reads. Floats are given as bits."""
        zero_point = self.zero_point - _ROUNDING_BITS if self.is_within else self.zero_point
        limits = () if self.limit is None else as_bits(self.limit, self.overflow)
        floats = as_bits(self.factor, self.least, self.largest, self.first_zero_point or 0)
        return *floats, zero_point, self.low, self.high, *limits

    def numbers_of(self, ops: Ops, factor: Value, zero_point: Value) -> list[Value]:
        """Returns the values of `numbers` for a channel with another factor and zero point, which is int32."""
        numbers = [ops.const(number) for number in self.numbers]
        numbers[0] = ops.bits(factor, "int32")
        if self.first_zero_point is not None:
            numbers[3] = ops.bits(ops.cast(zero_point, "float32"), "int32")
            return numbers
        numbers[4] = zero_point + (numbers[4] - ops.const(self.zero_point))
        if self.clamps_first:
            numbers[1:3] = [ops.bits(ops.cast(end - zero_point, "float32"), "int32") for end in numbers[5:7]]
        if self.limit is not None:
            overflow = ops.select(zero_point < ops.const(0), ops.const(FAR, "float32"), ops.const(-FAR, "float32"))
            numbers[8] = ops.bits(overflow, "int32")
        return numbers

    @property
    def clamps_first(self) -> bool:
        """True if scaled values are clamped to the bounds of the type before they are rounded."""
        return self.least > -FAR or self.largest < FAR

    @property
    def is_within(self) -> bool:
        """True if clamped values are so small that `_ROUNDING` can round them to even."""
        return max(-self.least, self.largest) < FAR and not self.away

    def express(self, ops: Ops, value: Value, numbers: Sequence[Value]) -> Value:
        """Returns the stored value, int32 and clamped."""
        factor, least, largest, addend = (ops.bits(number, "float32") for number in numbers[:4])
        zero_point, low, high = numbers[4:7]
        # Comparisons with NaN are false. So NaN becomes the bound that it is compared with first.
        ratio = self._ratio(ops, value, factor, addend)
        if self.limit is not None:
            limit, overflow = (ops.bits(number, "float32") for number in numbers[7:])
            ratio = ops.select(ratio < limit, ops.select(-limit < ratio, ratio, overflow), overflow)
        if self.nan_is_low:
            bounded = ops.min(ops.max(ratio, least), largest)
        else:
            bounded = ops.max(ops.min(ratio, largest), least)
        if self.is_within:
            return ops.bits(bounded + ops.const(_ROUNDING, "float32"), "int32") + zero_point
        whole = (ops.round_away(bounded) if self.away else ops.round_even(bounded)) + zero_point
        return ops.max(ops.min(whole, high), low)

    def _ratio(self, ops: Ops, value: Value, factor: Value, addend: Value) -> Value:
        if self.first_zero_point is not None:
            return ops.fma(value, factor, addend)
        return value / factor if self.divides else value * factor


@dataclass(frozen=True)
class Dequantization:
    """Converts stored values to float32."""

    scale: float
    zero_point: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The int32 numbers that the code reads. Floats are given as bits."""
        return *as_bits(self.scale), self.zero_point

    def express(self, ops: Ops, stored: Value, numbers: Sequence[Value]) -> Value:
        """Returns the real value, float32."""
        scale, zero_point = numbers
        return ops.cast(ops.cast(stored, "int32") - zero_point, "float32") * ops.bits(scale, "float32")


Conversion = Quantization | Dequantization
