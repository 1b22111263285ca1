"""Elementwise formulas of two operands other than addition and multiplication: differences, PReLU, comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.pairs import Arithmetic, Slope, Square, rounded_twice
from service.compiler.qnn.expressions.sums import Addition, FixedPointSum
from service.compiler.qnn.numerics.elementwise import (
    FixedPointAdd,
    SharedShiftAdd,
    binary_types,
    shared_shift,
    zero_points,
)
from service.compiler.qnn.numerics.expressed import Adds, Computes
from service.compiler.qnn.numerics.formula import Scalar, pointwise, store
from service.compiler.qnn.numerics.scaling.fixed_point import multiply_by_quantized_multiplier, quantize_multiplier
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

Multiplier = tuple[int, int]


class FixedPointSub(Adds):
    """TFLite's reference kernels (kernels/sub.cc, reference/sub.h): like their addition, but with a difference instead
    of the sum.
    """

    def __init__(self, left_shift: int = 20) -> None:
        self._sum = FixedPointAdd(left_shift)
        scaled = [f"mul(({x} - z{x}) << {left_shift}, m{x})" for x in "ab"]
        self.summary = f"z + mul({' - '.join(scaled)}, m), each mul rounded twice"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        lhs, rhs, out = self.multipliers(operation)
        first, second = (
            multiply_by_quantized_multiplier((x.astype(np.int64) - zero_point) << self._sum.left_shift, *multiplier)
            for x, zero_point, multiplier in ((a, lhs_type.zero_point, lhs), (b, rhs_type.zero_point, rhs))
        )
        return store(multiply_by_quantized_multiplier(first - second, *out) + out_type.zero_point, out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        assert not residual_is_lhs
        value, residual, out = self.multipliers(operation)
        zero_point = facts.zero_point(operation.per_tensor("rhs_type"))
        return FixedPointSum(value, residual, zero_point, out, subtracts=True, left_shift=self._sum.left_shift)

    def multipliers(self, operation: Operation) -> list[Multiplier]:
        """Returns three multipliers: those of both operands and that of their difference. All three equal the
        multipliers of an addition.
        """
        return self._sum.multipliers(operation)


class SharedShiftSub(Adds):
    """XNNPACK's subtraction: like its addition, but with the second multiplier negated (subgraph/binary.c)."""

    summary = "z + ((a * ma - b * mb + bias) >> shift), bias holding the zero points and one half"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        lhs, rhs, bias, shift = self.parameters(operation)
        total = a.astype(np.int64) * lhs + b.astype(np.int64) * rhs + bias
        return store((total >> shift) + out_type.zero_point, out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        return shared_shift(*self.parameters(operation), operation, facts, residual_is_lhs)

    def parameters(self, operation: Operation) -> tuple[int, int, int, int]:
        """Returns both multipliers, the bias and the shift."""
        lhs, rhs, _, shift = SharedShiftAdd().parameters(operation)
        lhs_type, rhs_type, _ = binary_types(operation)
        bias = (1 << (shift - 1)) - lhs * lhs_type.zero_point + rhs * rhs_type.zero_point
        return lhs, -rhs, bias, shift


class SquaredDifference(Computes):
    """TFLite (kernels/squared_difference.cc): both operands are scaled to units of 2**-7 times twice the larger
    scale.
    """

    summary = "z + mul((mul((a - za) << 7, ma) - mul((b - zb) << 7, mb)) ** 2, m), each mul rounded twice"
    LEFT_SHIFT = 7

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        lhs, rhs, out = self.multipliers(operation)
        first, second = (
            multiply_by_quantized_multiplier((x.astype(np.int64) - zero_point) << self.LEFT_SHIFT, *multiplier)
            for x, zero_point, multiplier in ((a, lhs_type.zero_point, lhs), (b, rhs_type.zero_point, rhs))
        )
        squared = (first - second) ** 2
        return store(multiply_by_quantized_multiplier(squared, *out) + out_type.zero_point, out_type)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        first, second, squared = map(rounded_twice, self.multipliers(operation))
        return Square((first, second, squared), zero_points(operation, facts), self.LEFT_SHIFT)

    def multipliers(self, operation: Operation) -> list[Multiplier]:
        """Returns the multipliers of both operands and of the square, in double. The scales, and twice the larger one,
        are float32.
        """
        lhs, rhs, out = (quantized.scale for quantized in binary_types(operation))
        twice_largest = 2 * max(lhs, rhs)
        real = twice_largest * twice_largest / ((1 << 2 * self.LEFT_SHIFT) * out)
        operation.require_defined(real < 1, "the output's scale is so small that LiteRT fails")
        return [
            quantize_multiplier(lhs / twice_largest),
            quantize_multiplier(rhs / twice_largest),
            quantize_multiplier(real),
        ]


class PRelu(Computes):
    """TFLite (reference/prelu.h): negative values are multiplied by the second operand."""

    summary = "z + mul(x - zx, m) from zero on, else z + mul((x - zx) * (a - za), m_a), rounded twice"

    def evaluate(self, operation: Operation, x: Array, alpha: Array) -> Array:
        in_type, alpha_type, out_type = binary_types(operation)
        identity, slope = self.multipliers(operation)
        centered = x.astype(np.int64) - in_type.zero_point
        above = multiply_by_quantized_multiplier(centered, *identity)
        below = multiply_by_quantized_multiplier(centered * (alpha.astype(np.int64) - alpha_type.zero_point), *slope)
        return store(np.where(centered >= 0, above, below) + out_type.zero_point, out_type)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        above, below = map(rounded_twice, self.multipliers(operation))
        return Slope(above, below, zero_points(operation, facts))

    def multipliers(self, operation: Operation) -> tuple[Multiplier, Multiplier]:
        """Returns the multiplier for values from zero on, and the one for negative values (PreluPrepare in
        kernels/activations.cc). Each step is rounded to float32.
        """
        x, alpha, out = (np.float32(quantized.scale) for quantized in binary_types(operation))
        return quantize_multiplier(float(x / out)), quantize_multiplier(float(x * alpha / out))


class Compare:
    """TFLite (reference/comparisons.h): both operands are scaled to units of 2**-8, rounded twice, and compared."""

    _LEFT_SHIFT = 8

    def __init__(self, relation: str, holds: Callable[..., Array]) -> None:
        self._holds = holds
        self.summary = f"mul((a - za) << 8, s_a) {relation} mul((b - zb) << 8, s_b), each mul rounded twice"
        self._relation = relation

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        first, second = (
            multiply_by_quantized_multiplier(
                (values.astype(np.int64) - quantized.zero_point) << self._LEFT_SHIFT, *self._multiplier(operation, name)
            )
            for values, name in ((a, "lhs_type"), (b, "rhs_type"))
            for quantized in [operation.per_tensor(name)]
        )
        return np.asarray(self._holds(first, second))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        lhs_type, rhs_type = operation.per_tensor("lhs_type"), operation.per_tensor("rhs_type")
        lhs, rhs = self._multiplier(operation, "lhs_type"), self._multiplier(operation, "rhs_type")
        relation = _RELATIONS[self._relation]

        def compute(a: Scalar, b: Scalar) -> Scalar:
            first = _scaled((a.astype("int32") - lhs_type.zero_point) << self._LEFT_SHIFT, lhs)
            return relation(first, _scaled((b.astype("int32") - rhs_type.zero_point) << self._LEFT_SHIFT, rhs))

        return pointwise(builder, "compare", compute, [a, b])

    def _multiplier(self, operation: Operation, name: str) -> Multiplier:
        scale = operation.per_tensor(name).scale
        operation.require_defined(scale < 1, f"{name} has a scale of {scale}, but LiteRT compares only scales below 1")
        return quantize_multiplier(scale)


_RELATIONS: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "==": tirx.EQ,
    "!=": tirx.NE,
    "<": tirx.LT,
    "<=": tirx.LE,
    ">": tirx.GT,
    ">=": tirx.GE,
}
# Operator name -> formula.
COMPARISONS: dict[str, Compare] = {
    "equal": Compare("==", np.equal),
    "not_equal": Compare("!=", np.not_equal),
    "less": Compare("<", np.less),
    "less_equal": Compare("<=", np.less_equal),
    "greater": Compare(">", np.greater),
    "greater_equal": Compare(">=", np.greater_equal),
}


def _scaled(x: Scalar, multiplier: Multiplier) -> Scalar:
    significand, shift = (tirx.const(value, "int32") for value in multiplier)
    return tensors.scale_by(x, significand, shift, np.array(multiplier[1]))
