"""Averages: compute the stored value from the sum of a window's stored values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import DoubleRounding
from service.compiler.qnn.expressions.sums import as_bits


class Average:
    """The computation of an average from the elements of a window.

    Attributes:
        dtype: the type of the sum.
    """

    dtype: ClassVar[str] = "int32"

    @property
    def parameters(self) -> tuple[int, ...]:
        """The int32 numbers that the code reads. Floats are given as bits."""
        raise NotImplementedError

    def add(self, ops: Ops, total: Value, stored: Value, parameters: Sequence[Value]) -> Value:
        """Adds a stored value to the sum. The sum starts at 0. Integers may be added in any order."""
        return total + stored

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        """Returns the value to store, int32 and not yet clamped, for the sum of `count` stored values.

        Args:
            count: a scalar, while the other values may be vectors.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class FloatWindow(Average):
    """Adds the real values in float32, one after another. The mean is divided by the output's scale, or multiplied by
    `factor`; then the zero point is added, and the result is rounded to even.

    Attributes:
        window: the number of elements of a window, which is the divisor if padding is counted. None if only the
            elements inside the image are counted.
        bias: the number that is added to a value to store it.
        factor: 1 / s, with which the mean is multiplied before it is rounded; the zero point is then added afterwards.
        limited: true if the result may exceed int32.
    """

    scale: float
    zero_point: int
    out_scale: float
    out_zero_point: int
    bias: int
    window: int | None
    factor: float | None = None
    limited: bool = False

    dtype: ClassVar[str] = "float32"

    @property
    def parameters(self) -> tuple[int, ...]:
        before, after = (0, self.out_zero_point + self.bias) if self.factor else (self.out_zero_point, self.bias)
        last = self.factor or self.out_scale
        return *as_bits(self.scale, last, self.window or 0, self.zero_point + self.bias, before), after

    def add(self, ops: Ops, total: Value, stored: Value, parameters: Sequence[Value]) -> Value:
        scale, zero_point = (ops.bits(parameters[index], "float32") for index in (0, 3))
        return ops.keep((ops.cast(stored, "float32") - zero_point) * scale, "float32") + total

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        _, last, window, _, before = (ops.bits(number, "float32") for number in parameters[:5])
        mean = ops.keep(total / (window if self.window else ops.float_count(count)), "float32")
        ratio = ops.keep(mean * last if self.factor else mean / last, "float32")
        moved = ops.keep(ratio + before, "float32")
        return ops.keep(ops.round_even(ops.limited(moved) if self.limited else moved)) + parameters[5]


@dataclass(frozen=True)
class ScaledMean(Average):
    """Subtracts all zero points from the sum, multiplies by a float32 factor, and rounds to even.

    Attributes:
        zero_points: the zero points of all elements together, as stored.
        limited: true if the result may exceed int32.
    """

    factor: float
    zero_points: int
    out_zero_point: int
    limited: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        return *as_bits(self.factor), self.zero_points, self.out_zero_point

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        factor, zero_points, out_zero_point = parameters
        real = ops.cast(ops.keep(total - zero_points), "float32")
        scaled = ops.keep(real * ops.bits(factor, "float32"), "float32")
        return ops.keep(ops.round_even(ops.limited(scaled) if self.limited else scaled)) + out_zero_point


@dataclass(frozen=True)
class IntegerMean(Average):
    """The integer mean of the model's values, with halves rounded away from zero.

    The code adds about half of the count to the sum of stored values, and divides with rounding down. If the sum of the
    model's values is positive, this rounds halves up. If the sum is zero or negative, halves must be rounded down, so
    the added number is smaller by one.

    Attributes:
        bias: the number that is added to a value to store it. Stored values are not negative.
    """

    bias: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return (0,)

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        half = count >> 1
        if self.bias == 0:
            return ops.quotient(ops.keep(total + ops.splat(half)), count)
        positive = ops.keep(total) > ops.splat(count * self.bias)
        nudge = ops.select(positive, ops.splat(half), ops.splat(count - 1 - half))
        return ops.quotient(ops.keep(total + nudge), count)


@dataclass(frozen=True)
class FixedMean(Average):
    """Multiplies the sum by a 31-bit significand that includes 1 / count, and rounds twice.

    Attributes:
        zero_points: the zero points of all elements together, as stored.
    """

    rounding: DoubleRounding
    zero_points: int
    zero_point: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.zero_points, self.zero_point, *(int(array[0]) for array in self.rounding.arrays)

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        zero_points, zero_point, *numbers = parameters
        return (
            self.rounding.express(ops, ops.keep(total - zero_points), [ops.keep(each) for each in numbers]) + zero_point
        )


@dataclass(frozen=True)
class RoundedMean(Average):
    """Multiplies by a float32 factor, rounds, adds a float32 addend, rounds, and rounds the result to even.

    Attributes:
        bias: the number that is added to a value to store it.
        limited: true if the result may exceed int32.
    """

    factor: float
    addend: float
    bias: int
    limited: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        return *as_bits(self.factor, self.addend), self.bias

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        factor, addend = (ops.bits(number, "float32") for number in parameters[:2])
        bias = ops.keep(parameters[2])
        product = ops.keep(ops.cast(total - ops.splat(count) * bias, "float32") * factor, "float32")
        mean = ops.keep(product + addend, "float32")
        return ops.round_even(ops.limited(mean) if self.limited else mean) + bias


@dataclass(frozen=True)
class EvenMean(Average):
    """The sum minus all zero points, times float(1 / count), rounded to even."""

    zero_point: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return (self.zero_point,)

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        (zero_point,) = parameters
        real = ops.cast(total - ops.splat(count) * zero_point, "float32")
        return ops.round_even(ops.keep(real * ops.reciprocal(count), "float32")) + zero_point


@dataclass(frozen=True)
class FusedMean(Average):
    """Subtracts all zero points from the sum, multiplies by a factor and adds the zero point by one fused multiply-add,
    and rounds to even.

    Attributes:
        zero_point: the zero point as the model stores it.
        stored: the zero point as the target stores it.
    """

    factor: float
    zero_point: int
    stored: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return *as_bits(self.factor, self.zero_point), self.stored, self.stored - self.zero_point

    def express(self, ops: Ops, total: Value, count: Value, parameters: Sequence[Value]) -> Value:
        factor, zero_point = (ops.bits(number, "float32") for number in parameters[:2])
        real = ops.cast(total - ops.splat(count) * parameters[2], "float32")
        return ops.keep(ops.round_even(ops.keep(ops.fma(real, factor, zero_point), "float32"))) + parameters[3]
