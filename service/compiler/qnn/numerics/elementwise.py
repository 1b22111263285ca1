"""Addition and multiplication of quantized tensors."""

from __future__ import annotations

import math

import numpy as np

from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.ops import LARGEST
from service.compiler.qnn.expressions.pairs import LARGEST_PRODUCT, Arithmetic, Product, rounded_twice
from service.compiler.qnn.expressions.requantization import FloatScale
from service.compiler.qnn.expressions.sums import Addition, FixedPointSum, SharedShiftSum
from service.compiler.qnn.numerics.expressed import Adds, Computes
from service.compiler.qnn.numerics.formula import store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array


class FixedPointAdd(Adds):
    """TFLite's reference kernels: both operands are scaled to units of 2**-20 times twice the larger scale (2**-15 for
    16-bit operands).

    PrepareGeneralAddOp (kernels/add.cc) and reference_integer_ops::Add: each operand is scaled with two roundings, and
    the sum is scaled once more.
    """

    def __init__(self, left_shift: int = 20) -> None:
        self.left_shift = left_shift
        scaled = [f"mul(({x} - z{x}) << {left_shift}, m{x})" for x in "ab"]
        self.summary = f"z + mul({' + '.join(scaled)}, m), each mul rounded twice"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        (lhs, rhs, out) = self.multipliers(operation)
        total = sum(
            fixed_point.multiply_by_quantized_multiplier(
                (values.astype(np.int64) - quantized.zero_point) << self.left_shift, *multiplier
            )
            for values, quantized, multiplier in ((a, lhs_type, lhs), (b, rhs_type, rhs))
        )
        scaled = fixed_point.multiply_by_quantized_multiplier(np.asarray(total), *out)
        return store(scaled + out_type.zero_point, out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        value, residual, out = self.multipliers(operation)
        if residual_is_lhs:
            value, residual = residual, value
        zero_point = facts.zero_point(operation.per_tensor("lhs_type" if residual_is_lhs else "rhs_type"))
        return FixedPointSum(value, residual, zero_point, out, left_shift=self.left_shift)

    def multipliers(self, operation: Operation) -> list[tuple[int, int]]:
        """Returns the multipliers of both operands and of their sum: (significand, shift) each."""
        lhs, rhs, out = (quantized.scale for quantized in binary_types(operation))
        twice_largest = 2 * max(lhs, rhs)
        reals = (lhs / twice_largest, rhs / twice_largest, twice_largest / ((1 << self.left_shift) * out))
        return [fixed_point.quantize_multiplier(real) for real in reals]


class NarrowAdd(FixedPointAdd):
    """LiteRT's optimized kernel. Its results equal the reference kernel's as long as every sum fits 16 bits, to which
    vector instructions narrow the sums (AddElementwiseInt8 in optimized/integer_ops/add.h).
    """

    def multipliers(self, operation: Operation) -> list[tuple[int, int]]:
        lhs, rhs, out = binary_types(operation)
        require_narrow(operation, sum(_reach(quantized) * quantized.scale for quantized in (lhs, rhs)) / out.scale)
        return super().multipliers(operation)


class SharedShiftAdd(Adds):
    """XNNPACK: 21-bit integer multipliers over one shift, rounded once, halves up.

    xnn_init_qs8_add_minmax_scalar_params (microparams-init.c) and the qs8/qu8 vadd micro-kernels.
    """

    summary = "z + ((a * ma + b * mb + bias) >> shift), bias holding the zero points and one half"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        lhs, rhs, bias, shift = self.parameters(operation)
        total = a.astype(np.int64) * lhs + b.astype(np.int64) * rhs + bias
        return store((total >> shift) + out_type.zero_point, out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        return shared_shift(*self.parameters(operation), operation, facts, residual_is_lhs)

    def parameters(self, operation: Operation) -> tuple[int, int, int, int]:
        """Returns both multipliers, the bias and the shift."""
        lhs_type, rhs_type, out_type = binary_types(operation)
        out_scale = np.float32(out_type.scale)
        lhs, rhs = (np.float32(quantized.scale) / out_scale for quantized in (lhs_type, rhs_type))
        shift = 20 - (math.frexp(max(lhs, rhs))[1] - 1)
        operation.require_defined(
            shift <= 30, "XNNPACK refuses an output scale of over 1024 times those of the operands"
        )
        multipliers = [round(math.ldexp(float(scale), shift)) for scale in (lhs, rhs)]  # round() rounds halves to even
        bias = (1 << (shift - 1)) - multipliers[0] * lhs_type.zero_point - multipliers[1] * rhs_type.zero_point
        return multipliers[0], multipliers[1], bias, shift


class FixedPointMul(Computes):
    """TFLite's reference kernels (kernels/mul.cc, reference_integer_ops::Mul): one scaling, with two roundings.

    The multiplier s_a * s_b / s is computed in float32.
    """

    summary = "z + mul((a - za) * (b - zb), m), m ~= float(s_a * s_b / s), rounded twice"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        product = (a.astype(np.int64) - lhs_type.zero_point) * (b.astype(np.int64) - rhs_type.zero_point)
        multiplier = fixed_point.quantize_multiplier(product_scale(operation))
        scaled = fixed_point.multiply_by_quantized_multiplier(product, *multiplier)
        return store(scaled + out_type.zero_point, out_type)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        multiplier = fixed_point.quantize_multiplier(product_scale(operation))
        return Product(rounded_twice(multiplier), zero_points(operation, facts))


class NarrowMul(FixedPointMul):
    """LiteRT's optimized kernel. It equals the reference kernel as long as every product fits the 16 bits to which
    vector instructions narrow it (MulElementwise in optimized/integer_ops/mul.h).
    """

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        self._check(operation)
        return super().evaluate(operation, a, b)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        self._check(operation)
        return super().arithmetic(operation, facts)

    @staticmethod
    def _check(operation: Operation) -> None:
        lhs, rhs, _ = binary_types(operation)
        require_narrow(operation, _reach(lhs) * _reach(rhs) * product_scale(operation))


class FloatMul(Computes):
    """XNNPACK: the qs8/qu8 vmul micro-kernels, one float32 multiplication rounded to the nearest even integer."""

    summary = "z + round_even(float((a - za) * (b - zb)) * float(s_a * s_b / s))"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        product = (a.astype(np.int64) - lhs_type.zero_point) * (b.astype(np.int64) - rhs_type.zero_point)
        scaled = product.astype(np.float32) * np.float32(product_scale(operation))
        return store(round_even(scaled).astype(np.int64) + out_type.zero_point, out_type)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        scale = product_scale(operation)
        scaling = FloatScale(np.array([scale]), bounded=LARGEST_PRODUCT * scale < LARGEST)
        return Product(scaling, zero_points(operation, facts))


def require_narrow(operation: Operation, reach: float) -> None:
    """Requires that results with a magnitude of up to `reach` steps fit the 16 bits of LiteRT's vector instructions.

    Raises:
        UnsupportedOperator: the results do not fit. LiteRT's result would depend on the position of an element in the
            tensor.
    """
    largest = reach + abs(operation.per_tensor("out_type").zero_point)
    if largest >= 1 << 15:
        raise UnsupportedOperator(
            f"{operation.name.removeprefix('qnn.')} has results of up to {largest:.3g} output steps, but the kernel of "
            "LiteRT computes them in 16 bits",
            op=operation.name,
            hint="compile with --numerics litert-reference, or quantize the output with a larger scale",
        )


def _reach(quantized: QuantizedType) -> int:
    """Returns the largest distance of a stored value from the zero point."""
    low, high = STORAGE_RANGES[quantized.dtype]
    return max(high - quantized.zero_point, quantized.zero_point - low)


def product_scale(operation: Operation) -> float:
    """Returns s_a * s_b / s, each step rounded to float32."""
    lhs, rhs, out = (np.float32(quantized.scale) for quantized in binary_types(operation))
    with np.errstate(over="ignore"):
        return float(lhs * rhs / out)


def binary_types(operation: Operation):  # type: ignore[no-untyped-def]
    return tuple(operation.per_tensor(name) for name in ("lhs_type", "rhs_type", "out_type"))


def zero_points(operation: Operation, facts: Facts) -> tuple[int, int]:
    """Returns the zero points of both operands, as the target stores them."""
    lhs, rhs = (facts.zero_point(operation.per_tensor(name)) for name in ("lhs_type", "rhs_type"))
    return lhs, rhs


def shared_shift(
    lhs: int, rhs: int, bias: int, shift: int, operation: Operation, facts: Facts, residual_is_lhs: bool
) -> SharedShiftSum:
    """Returns the sum of both operands times their multipliers, plus `bias`, shifted. The bias contains the zero
    points; in the expression, only that of the residual and one half.
    """
    factor, of_residual = (rhs, lhs) if residual_is_lhs else (lhs, rhs)
    zero_point = facts.zero_point(operation.per_tensor("lhs_type" if residual_is_lhs else "rhs_type"))
    return SharedShiftSum(factor, of_residual, (1 << (shift - 1)) - of_residual * zero_point, shift)
