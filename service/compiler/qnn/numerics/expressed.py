"""Base classes of formulas that are computed by an expression (`qnn.expressions`). They emit the expression as Relax;
kernels use the same expression on vectors and GPUs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from service.compiler.qnn.expressions.averages import Average
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.pairs import Arithmetic, Sum
from service.compiler.qnn.expressions.requantization import Requantization
from service.compiler.qnn.expressions.rescaling import Rescaling
from service.compiler.qnn.expressions.sums import Addition
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.formula import ChannelConstant, Scalar, clamped, pointwise
from service.compiler.qnn.operation import Operation, value_of
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array


class Chooses:
    """A formula that is one of several formulas, depending on the operation."""

    def chosen(self, operation: Operation) -> Any:
        """Returns the formula for an operation."""
        raise NotImplementedError

    def evaluate(self, operation: Operation, *operands: Array) -> Array:
        return np.asarray(self.chosen(operation).evaluate(operation, *operands))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *operands: relax.Expr) -> relax.Expr:
        return self.chosen(operation).lower(operation, builder, *operands)


class Converts:
    """A formula that converts accumulators to other values."""

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        """Returns the expression.

        Args:
            facts: the limits of the accumulators.
            bias: the bias of real values that the operation adds, float32 `[C]`.
        """
        raise NotImplementedError


class Requantizes(Converts):
    """A formula that converts accumulators, or stored values of one type, to stored values of another type."""

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, bias: relax.Expr | None = None
    ) -> relax.Expr:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        added = None if bias is None else bias_of(operation, bias)
        scaling = self.requantization(operation, UNKNOWN, added)

        def scale(value: Scalar, *channels: Scalar) -> Scalar:
            centered = value.astype("int32") - in_type.zero_point
            return clamped(scaling.express(TENSORS, centered, channels) + out_type.zero_point, out_type)

        axis = in_type.axis if bias is None else len(x.ty.shape) - 1
        return pointwise(builder, "requantize", scale, [x], [ChannelConstant(each, axis) for each in scaling.arrays])


class Rescales:
    """A formula that converts 64-bit accumulators to 16-bit values."""

    def rescaling(self, operation: Operation) -> Rescaling:
        """Returns the expression."""
        raise NotImplementedError

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        rescaling = self.rescaling(operation)

        def rescale(value: Scalar, *channels: Scalar) -> Scalar:
            return clamped(rescaling.express(TENSORS, value, channels), out_type)

        constants = [ChannelConstant(each, in_type.axis) for each in rescaling.arrays]
        return pointwise(builder, "requantize", rescale, [x], constants)


class Computes:
    """A formula of two stored operands."""

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        """Returns the expression, for operands as the target stores them."""
        raise NotImplementedError

    def lower(self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        arithmetic = self.arithmetic(operation, UNKNOWN)
        numbers = [TENSORS.const(number) for number in arithmetic.numbers]
        arrays = [TENSORS.const(array[0].item(), str(array.dtype)) for array in arithmetic.arrays]

        def compute(*operands: Scalar) -> Scalar:
            values = [operand.astype("int32") for operand in operands]
            result = arithmetic.express(TENSORS, values, arrays, numbers)
            return clamped(result + out_type.zero_point, out_type)

        return pointwise(builder, operation.name.removeprefix("qnn."), compute, [a, b])


class Adds(Computes):
    """A formula that adds two stored operands, or subtracts the second one."""

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        """Returns the expression.

        Args:
            residual_is_lhs: true if the first operand is the expression's residual.
        """
        raise NotImplementedError

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        zero_point = facts.zero_point(operation.per_tensor("lhs_type"))
        return Sum.of(self.addition(operation, facts, residual_is_lhs=False), zero_point)


class Averages:
    """A formula that averages stored values: those of a pooling window, or those along axes."""

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        """Returns the expression.

        Args:
            count: the number of elements of a whole window, or along the axes.

        Raises:
            Declined: no expression computes the formula for this operation.
        """
        raise NotImplementedError


def bias_of(operation: Operation, bias: relax.Expr) -> Array:
    """Returns the value of a bias.

    Raises:
        UnsupportedOperator: the bias is not constant.
    """
    value = value_of(bias)
    if value is None:
        raise UnsupportedOperator(f"{operation.name} has a bias that is not constant", op=operation.name)
    return value
