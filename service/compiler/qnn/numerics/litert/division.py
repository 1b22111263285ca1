"""Division of 8-bit values: TFLite's only kernel for it (kernels/div.cc, reference/div.h), which takes uint8 only.

There are 65,536 pairs of operands, so the formula is lowered to a table of their quotients.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.elementwise import binary_types
from service.compiler.qnn.numerics.formula import Scalar, Table, pointwise, store
from service.compiler.qnn.numerics.functions.softmax import reciprocal
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.fixed_point import saturating_rounding_doubling_high_mul
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

_VALUES = 256


class FixedPointDivision:
    """DivElementwise, as x86-64 executes it: C++ leaves shifts by 32 bits and more undefined, and x86-64 takes their
    count modulo 32.

    If a divisor is zero, LiteRT's call fails. Here a quotient by zero saturates in the direction of the dividend's
    sign, and zero divided by zero is zero.
    """

    summary = "z + round(round(a << h, 1 / b) * m >> e), 1 / b by Newton-Raphson in Q0.31, m ~= s_a / (s_b * s)"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        dividend, divisor = a.astype(np.int64) - lhs_type.zero_point, b.astype(np.int64) - rhs_type.zero_point
        dividend, divisor = np.broadcast_arrays(np.where(divisor < 0, -dividend, dividend), np.abs(divisor))
        inverse, bits_over_unit = reciprocal(np.maximum(divisor, 1), 31)
        headroom = _leading_sign_bits(dividend)
        quotient = saturating_rounding_doubling_high_mul(dividend << headroom, inverse)
        significand, shift = fixed_point.exact_multiplier(lhs_type.scale / (rhs_type.scale * out_type.scale))
        scaled = saturating_rounding_doubling_high_mul(quotient, significand)
        rounded = fixed_point.machine_divide_by_pot(scaled, bits_over_unit + headroom - shift)
        endless = np.sign(dividend) * (1 << 31)
        return store(np.where(divisor == 0, endless, rounded) + out_type.zero_point, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        low, high = STORAGE_RANGES[operation.per_tensor("lhs_type").dtype]
        values = np.arange(low, high + 1).astype(operation.per_tensor("lhs_type").dtype)
        table = Table(self.evaluate(operation, values[:, None], values[None]).reshape(-1))

        def look_up(a: Scalar, b: Scalar, quotients: te.Tensor) -> Scalar:
            row, column = (operand.astype("int32") - tirx.const(low, "int32") for operand in (a, b))
            return quotients[row * tirx.const(_VALUES, "int32") + column]

        return pointwise(builder, "div", look_up, [a, b], [table])


def _leading_sign_bits(x: Array) -> Array:
    """CountLeadingSignBits (common.h) of 32-bit numbers: how far they can be shifted to the left."""
    magnitude = np.where(x < 0, 2 * np.abs(x) - 1, x)
    zeros = 32 - np.ceil(np.log2(magnitude + 1)).astype(np.int64)
    return np.asarray(zeros - (x >= 0))
