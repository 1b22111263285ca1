"""Arithmetic of two stored operands: sums, products, squared differences and PReLU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import DoubleRounding, Requantization
from service.compiler.qnn.expressions.sums import Addition, Multiplier, SharedShiftSum
from service.core.models.arrays import Array

LARGEST_PRODUCT = 255 * 255


class Arithmetic(Protocol):
    """Computes an operator of two stored operands. The result is not yet clamped, and lacks the output's zero point."""

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The numbers that the code reads, each in its own array."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Further int32 numbers that the code reads."""

    def express(self, ops: Ops, operands: Sequence[Value], arrays: Sequence[Value], numbers: Sequence[Value]) -> Value:
        """Returns the result. `arrays` and `numbers` contain the values of the properties of these names."""


@dataclass(frozen=True)
class Sum(Arithmetic):
    """An addition. The second operand takes the role of the residual.

    Attributes:
        zero_point: the first operand's zero point, which is subtracted here; 0 if `addition` subtracts it.
    """

    addition: Addition
    zero_point: int

    @staticmethod
    def of(addition: Addition, zero_point: int) -> Sum:
        if isinstance(addition, SharedShiftSum):  # saves one subtraction for each value
            return Sum(replace(addition, bias=addition.bias - addition.multiplier * zero_point), 0)
        return Sum(addition, zero_point)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_point, *self.addition.parameters

    def express(self, ops: Ops, operands: Sequence[Value], arrays: Sequence[Value], numbers: Sequence[Value]) -> Value:
        zero_point, *rest = numbers
        value = ops.keep(operands[0] - zero_point) if self.zero_point else operands[0]
        return self.addition.express(ops, value, operands[1], tuple(rest))


@dataclass(frozen=True)
class Product(Arithmetic):
    """The integer product of both operands minus their zero points, requantized like an accumulator."""

    requantization: Requantization
    zero_points: tuple[int, int]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.requantization.arrays

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_points

    def express(self, ops: Ops, operands: Sequence[Value], arrays: Sequence[Value], numbers: Sequence[Value]) -> Value:
        lhs, rhs = (operand - zero_point for operand, zero_point in zip(operands, numbers, strict=True))
        return self.requantization.express(ops, ops.keep(lhs * rhs), tuple(arrays))


@dataclass(frozen=True)
class RealProduct(Arithmetic):
    """Multiplies the dequantized operands, multiplies by the reciprocal of the output's scale, and rounds to even.

    Attributes:
        factors: both scales and the reciprocal, float32.
        limited: true if the result may exceed int32.
    """

    factors: tuple[float, float, float]
    zero_points: tuple[int, int]
    limited: bool = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(np.array([factor], np.float32) for factor in self.factors)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_points

    def express(self, ops: Ops, operands: Sequence[Value], arrays: Sequence[Value], numbers: Sequence[Value]) -> Value:
        *scales, factor = arrays
        lhs, rhs = (
            ops.keep(ops.cast(operand - zero_point, "float32") * scale, "float32")
            for operand, zero_point, scale in zip(operands, numbers, scales, strict=True)
        )
        scaled = ops.keep(lhs * rhs, "float32") * factor
        return ops.keep(ops.round_even(ops.limited(scaled) if self.limited else scaled))


@dataclass(frozen=True)
class Slope(Arithmetic):
    """The first operand, or, if the first operand is negative, its product with the second operand (the slope).

    Attributes:
        above: requantizes a first operand of at least zero.
        below: requantizes the product of both operands.
    """

    above: DoubleRounding
    below: DoubleRounding
    zero_points: tuple[int, int]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return *self.above.arrays, *self.below.arrays

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_points

    def express(self, ops: Ops, operands: Sequence[Value], arrays: Sequence[Value], numbers: Sequence[Value]) -> Value:
        x, alpha = (ops.keep(operand - zero_point) for operand, zero_point in zip(operands, numbers, strict=True))
        split = len(self.above.arrays)
        above = ops.keep(self.above.express(ops, x, tuple(arrays[:split])))
        below = ops.keep(self.below.express(ops, ops.keep(x * alpha), tuple(arrays[split:])))
        return ops.keep(ops.select(x < ops.const(0), below, above))


@dataclass(frozen=True)
class Square(Arithmetic):
    """The squared difference of both operands.

    Attributes:
        scalings: the scalings of the first operand, the second operand, and the squared difference.
        left_shift: the left shift of both operands.
    """

    scalings: tuple[DoubleRounding, DoubleRounding, DoubleRounding]
    zero_points: tuple[int, int]
    left_shift: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(array for scaling in self.scalings for array in scaling.arrays)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_points

    def express(self, ops: Ops, operands: Sequence[Value], arrays: Sequence[Value], numbers: Sequence[Value]) -> Value:
        rest = list(arrays)

        def scaled(scaling: DoubleRounding, x: Value) -> Value:
            own = tuple(rest.pop(0) for _ in scaling.arrays)
            return ops.keep(scaling.express(ops, ops.keep(x), own))

        first, second, squared = self.scalings
        lhs, rhs = (
            (operand - zero_point) << ops.const(self.left_shift)
            for operand, zero_point in zip(operands, numbers, strict=True)
        )
        difference = ops.keep(scaled(first, lhs) - scaled(second, rhs))
        return scaled(squared, difference * difference)


def rounded_twice(multiplier: Multiplier) -> DoubleRounding:
    """Returns the requantization that multiplies values below 2**30 by `multiplier`."""
    significand, shift = multiplier
    return DoubleRounding(np.array([significand]), np.array([shift]), bounded=True)
