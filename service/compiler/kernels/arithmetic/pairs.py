"""Elementwise arithmetic of two 8-bit operands: sums, products, differences and PReLU.

This module reuses the arithmetic of the epilogues if possible. So an addition is rounded in the same way as in a
convolution's epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.addition import Addition, SharedShiftSum
from service.compiler.kernels.arithmetic.numerics import addition, bounds
from service.compiler.kernels.arithmetic.onnxruntime_epilogues import ShiftedProduct
from service.compiler.kernels.arithmetic.requantization import DoubleRounding, FloatScale, Requantization
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.program import Expr
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.arithmetic import Multiplier, PRelu, SquaredDifference
from service.compiler.qnn.numerics.elementwise import FixedPointMul, FloatMul, product_scale
from service.compiler.qnn.numerics.onnxruntime import mlas
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.torch.aten import reciprocal
from service.compiler.qnn.numerics.torch.decomposed import RealMul
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_LARGEST_PRODUCT = 255 * 255


class Arithmetic(Protocol):
    """Computes an operator of two stored operands. The result is not yet clamped, and lacks the output's zero point."""

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The numbers that the generated code reads, each in its own array."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Further int32 numbers that the generated code reads."""

    def apply(self, lanes: Lanes, operands: Sequence[Expr], arrays: Sequence[Expr], numbers: Sequence[Expr]) -> Expr:
        """Returns the result. Each vector of `arrays` and `numbers` contains one number in every lane."""


@dataclass(frozen=True)
class Sum(Arithmetic):
    """An epilogue's addition. The second operand takes the role of the residual.

    Attributes:
        zero_point: the first operand's zero point, which is subtracted here; 0 if `addition` subtracts it.
    """

    addition: Addition
    zero_point: int

    @staticmethod
    def of(addition: Addition, zero_point: int) -> Sum:
        if isinstance(addition, SharedShiftSum):  # saves one subtraction for each vector
            return Sum(replace(addition, bias=addition.bias - addition.multiplier * zero_point), 0)
        return Sum(addition, zero_point)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return ()

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_point, *self.addition.parameters

    def apply(self, lanes: Lanes, operands: Sequence[Expr], arrays: Sequence[Expr], numbers: Sequence[Expr]) -> Expr:
        zero_point, *rest = numbers
        value = lanes.keep(operands[0] - zero_point) if self.zero_point else operands[0]
        return self.addition.apply(lanes, value, operands[1], tuple(rest))


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

    def apply(self, lanes: Lanes, operands: Sequence[Expr], arrays: Sequence[Expr], numbers: Sequence[Expr]) -> Expr:
        lhs, rhs = (operand - zero_point for operand, zero_point in zip(operands, numbers, strict=True))
        return self.requantization.apply(lanes, lanes.keep(lhs * rhs), tuple(arrays))


@dataclass(frozen=True)
class RealProduct(Arithmetic):
    """`RealMul`: multiplies the dequantized operands, and then multiplies by the reciprocal of the output's scale.

    Attributes:
        factors: both scales and the reciprocal, float32.
    """

    factors: tuple[float, float, float]
    zero_points: tuple[int, int]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(np.array([factor], np.float32) for factor in self.factors)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.zero_points

    def apply(self, lanes: Lanes, operands: Sequence[Expr], arrays: Sequence[Expr], numbers: Sequence[Expr]) -> Expr:
        *scales, factor = arrays
        lhs, rhs = (
            lanes.keep(tirx.Cast(f"float32x{lanes.isa.lanes}", operand - zero_point) * scale, "float32")
            for operand, zero_point, scale in zip(operands, numbers, scales, strict=True)
        )
        return lanes.keep(lanes.isa.round_even(lanes.keep(lhs * rhs, "float32") * factor))


@dataclass(frozen=True)
class Slope(Arithmetic):
    """`PRelu`: the first operand, or, if the first operand is negative, its product with the second operand (the
    slope).

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

    def apply(self, lanes: Lanes, operands: Sequence[Expr], arrays: Sequence[Expr], numbers: Sequence[Expr]) -> Expr:
        x, alpha = (lanes.keep(operand - zero_point) for operand, zero_point in zip(operands, numbers, strict=True))
        split = len(self.above.arrays)
        above = lanes.keep(self.above.apply(lanes, x, tuple(arrays[:split])))
        below = lanes.keep(self.below.apply(lanes, lanes.keep(x * alpha), tuple(arrays[split:])))
        return lanes.keep(tirx.Select(x < lanes.const(0), below, above))


@dataclass(frozen=True)
class Square(Arithmetic):
    """`SquaredDifference`.

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

    def apply(self, lanes: Lanes, operands: Sequence[Expr], arrays: Sequence[Expr], numbers: Sequence[Expr]) -> Expr:
        rest = list(arrays)

        def scaled(scaling: DoubleRounding, x: Expr) -> Expr:
            own = tuple(rest.pop(0) for _ in scaling.arrays)
            return lanes.keep(scaling.apply(lanes, lanes.keep(x), own))

        first, second, squared = self.scalings
        lhs, rhs = (
            (operand - zero_point) << lanes.const(self.left_shift)
            for operand, zero_point in zip(operands, numbers, strict=True)
        )
        difference = lanes.keep(scaled(first, lhs) - scaled(second, rhs))
        return scaled(squared, difference * difference)


def arithmetic_of(mode: Mode, operation: Operation) -> Arithmetic:
    """Returns the arithmetic of an operator on two tensors.

    Raises:
        Declined: no kernel computes `mode`'s formula for the operator.
    """
    lhs, rhs = (bounds(operation.per_tensor(name)).zero_point for name in ("lhs_type", "rhs_type"))
    if operation.name in ("qnn.add", "qnn.sub"):
        return Sum.of(addition(mode, operation, residual_is_lhs=False), lhs)
    formula = mode.formula(operation)
    if isinstance(formula, RealMul):
        return _real_product(operation, (lhs, rhs))
    if operation.name == "qnn.mul":
        return Product(_product_requantization(mode, operation), (lhs, rhs))
    if isinstance(formula, PRelu):
        above, below = map(_rounded_twice, formula.multipliers(operation))
        return Slope(above, below, (lhs, rhs))
    if isinstance(formula, SquaredDifference):
        first, second, squared = map(_rounded_twice, formula.multipliers(operation))
        return Square((first, second, squared), (lhs, rhs), formula.LEFT_SHIFT)
    raise Declined(f"no kernel computes {formula.summary}")


def _real_product(operation: Operation, zero_points: tuple[int, int]) -> RealProduct:
    scales = [operation.per_tensor(name).scale for name in ("lhs_type", "rhs_type")]
    factor = float(reciprocal(operation.per_tensor("out_type")))
    if not _LARGEST_PRODUCT * scales[0] * scales[1] * factor < 1 << 30:
        raise Declined("a scaled value may not fit the int32 that kernels round to")
    return RealProduct((scales[0], scales[1], factor), zero_points)


def _rounded_twice(multiplier: Multiplier) -> DoubleRounding:
    """Returns the requantization that multiplies values below 2**30 by `multiplier`."""
    significand, shift = multiplier
    return DoubleRounding(np.array([significand]), np.array([shift]), bounded=True)


def _product_requantization(mode: Mode, operation: Operation) -> Requantization:
    """Returns the requantization of a `qnn.mul`, for the product of two operands minus their zero points."""
    formula, scale = mode.formula(operation), product_scale(operation)
    if isinstance(formula, FloatMul):
        largest = _LARGEST_PRODUCT * scale
        if largest >= 1 << 62:
            raise Declined("a product exceeds 64 bits")
        return FloatScale(np.array([scale]), bounded=largest < 1 << 30)
    if isinstance(formula, FixedPointMul):
        return _rounded_twice(fixed_point.quantize_multiplier(scale))
    if isinstance(formula, mlas.Mul):
        if formula.overflows(operation):
            raise Declined("a scaled product may not fit the int32 that kernels round to")
        return ShiftedProduct(formula.scale(operation), operation.per_tensor("out_type").zero_point)
    raise Declined(f"no kernel computes {formula.summary}")
