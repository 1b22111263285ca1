"""Softmax over the last axis. An 8-bit input has 256 possible differences from its row's maximum, so exp is read from a
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics.formula import OPAQUE, Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.fixed_point import (
    EXP_BARREL_SHIFTER,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_INT32_MAX = (1 << 31) - 1
_INTEGER_BITS = 5  # integer bits of a scaled difference
_SUM_BITS = 12  # integer bits of the sum of exponentials


class FixedPointSoftmax:
    """TFLite's reference kernel (reference/softmax.h) on gemmlowp's fixed-point exp and reciprocal.

    The output has the fixed scale 1/256, and its zero point is the storage's minimum. If the exponentials of a row add
    up to 512 or more, as those of a thousand equal logits do, the reference aborts. This formula returns the real
    quotient, which rounds to 0.
    """

    summary = "gemmlowp fixed point: Q5.26 differences, Q0.31 exp, Q12.19 sum, Newton-Raphson reciprocal"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        table = self._table(operation)
        difference = x.max(axis=-1, keepdims=True).astype(np.int64) - x
        exponentials = table[difference]
        total = rounding_divide_by_pot(exponentials, _SUM_BITS).sum(axis=-1, keepdims=True)
        scale, bits_over_unit = reciprocal(total, _SUM_BITS)
        product = saturating_rounding_doubling_high_mul(exponentials, scale)
        scaled = rounding_divide_by_pot(product, bits_over_unit + 31 - 8)
        return store(scaled + np.iinfo(out_type.dtype).min, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        exponentials = look_up(builder, x, self._table(operation).astype(np.int32))
        rounded = pointwise(
            builder, "to_sum", lambda e: tensors.divide_by_pot(e, tirx.const(_SUM_BITS, "int32")), [exponentials]
        )
        total = row_reduce(builder, builder.emit(rounded), te.sum, "sum")
        scale = builder.emit(builder.call_te(_reciprocals, total, primfunc_attrs={"op_pattern": OPAQUE}))

        def normalize(exponential: Scalar, total: Scalar, scale: Scalar) -> Scalar:
            shift = tirx.const(_SUM_BITS + 23, "int32") - tirx.clz(total)
            # A sum of 512 or more needs a shift by more than 31 bits, which int32 does not allow.
            largest = tirx.const(31, "int32")
            scaled = tensors.divide_by_pot(tensors.high_mul(exponential, scale), tirx.min(shift, largest))
            probability = tirx.Select(shift > largest, tirx.const(0, "int32"), scaled)
            return clamped(probability + int(np.iinfo(out_type.dtype).min), out_type)

        return pointwise(builder, "normalize", normalize, [exponentials, total, scale])

    def _table(self, operation: Operation) -> Array:
        """Returns exp(-scale * beta * d) for d in 0..255, Q0.31; zero below the input radius (SoftmaxPrepare)."""
        real = operation.floating("beta") * operation.per_tensor("in_type").scale * (1 << (31 - _INTEGER_BITS))
        significand, shift = fixed_point.quantize_multiplier(min(real, _INT32_MAX))
        radius = math.floor(((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)) / (1 << shift))
        difference = np.minimum(np.arange(256), radius)
        scaled = saturating_rounding_doubling_high_mul(-difference << shift, significand)
        return np.where(np.arange(256) <= radius, _exp_on_negative_values(scaled), 0)


class TableSoftmax:
    """TFLite's optimized kernel (optimized_ops.h, Softmax with PopulateSoftmaxLookupTable): float32 throughout.

    XNNPACK does not support a quantized softmax, so LiteRT's default delegate leaves it to this kernel. Like the
    kernel, the formula adds from left to right.
    """

    summary = "float32: exp from a table, summed in order, z + trunc(e * (1 / (sum * s)) + 0.5)"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        exponentials = self.table(operation)[x.max(axis=-1, keepdims=True).astype(np.int64) - x]
        total = np.zeros((*x.shape[:-1], 1), np.float32)
        for column in range(x.shape[-1]):
            total = total + exponentials[..., column : column + 1]
        inverse = np.float32(1) / (total * np.float32(out_type.scale))
        rounded = np.trunc(exponentials * inverse + np.float32(0.5)).astype(np.int64)
        return store(rounded + out_type.zero_point, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        exponentials = look_up(builder, x, self.table(operation))
        total = row_reduce(builder, exponentials, te.sum, "sum")
        scale, one = tirx.const(out_type.scale, "float32"), tirx.const(1.0, "float32")
        inverse = builder.emit(pointwise(builder, "reciprocal", lambda total: one / (total * scale), [total]))

        def normalize(exponential: Scalar, inverse: Scalar) -> Scalar:
            rounded = (exponential * inverse + tirx.const(0.5, "float32")).astype("int32")
            return clamped(rounded + out_type.zero_point, out_type)

        return pointwise(builder, "normalize", normalize, [exponentials, inverse])

    def table(self, operation: Operation) -> Array:
        """Returns expf(-scale * beta * d) for d in 0..255. The function is computed through float64, because glibc's
        expf rounds correctly.
        """
        scale = np.float32(-operation.per_tensor("in_type").scale) * np.float32(operation.floating("beta"))
        return np.exp((scale * np.arange(256, dtype=np.float32)).astype(np.float64)).astype(np.float32)


def look_up(builder: relax.BlockBuilder, x: relax.Expr, table: Array, length: relax.Expr | None = None) -> relax.Expr:
    """Returns table[max(row) - x] for each element of each row.

    Args:
        table: `[256]`; or with a length `[columns, 256]`, a table for each number of columns.
        length: the number of columns to compute; None for all. The others become zero.
    """
    if length is not None:
        return _look_up_within(builder, x, table, length)
    largest = row_reduce(builder, x, te.max, "max")

    def look_up(x: te.Tensor, largest: te.Tensor, table: te.Tensor) -> te.Tensor:
        def element(*index: Any) -> Scalar:
            return table[largest(*index[:-1], 0).astype("int32") - x(*index).astype("int32")]

        return te.compute(x.shape, element, name="exp")

    return builder.emit_te(look_up, x, largest, relax.const(table), primfunc_name_hint="exp")


def _look_up_within(builder: relax.BlockBuilder, x: relax.Expr, tables: Array, length: relax.Expr) -> relax.Expr:
    dtype, least = str(tables.dtype), tirx.const(int(np.iinfo(str(x.ty.dtype)).min), str(x.ty.dtype))

    def fill(x: te.Tensor, length: te.Tensor) -> te.Tensor:
        def element(*index: Any) -> Scalar:
            return tirx.if_then_else(index[-1] < length[0], x(*index), least)

        return te.compute(x.shape, element, name="inside")

    x = builder.emit_te(fill, x, length, primfunc_name_hint="inside")
    largest = row_reduce(builder, x, te.max, "max")

    def look_up(x: te.Tensor, largest: te.Tensor, length: te.Tensor, tables: te.Tensor) -> te.Tensor:
        def element(*index: Any) -> Scalar:
            distance = largest(*index[:-1], 0).astype("int32") - x(*index).astype("int32")
            is_inside = index[-1] < length[0]
            return tirx.if_then_else(is_inside, tables[length[0] - 1, distance], tirx.const(0, dtype))

        return te.compute(x.shape, element, name="exp")

    return builder.emit_te(look_up, x, largest, length, relax.const(tables), primfunc_name_hint="exp")


def within(operation: Operation, x: Array, length: Array, evaluate: Callable[[Array], Array]) -> Array:
    """Returns `evaluate` of the first columns of `x`. The other columns become the result's zero point."""
    count, out_type = int(length[0]), operation.per_tensor("out_type")
    whole = np.full(x.shape, out_type.zero_point, out_type.dtype)
    whole[..., :count] = evaluate(x[..., :count])
    return whole


def row_reduce(builder: relax.BlockBuilder, x: relax.Expr, combine: Any, name: str) -> relax.Expr:
    """Reduces `[…, K]` to `[…, 1]`, in order of increasing index."""

    def compute(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, x.shape[-1]), "k")
        return te.compute([*x.shape[:-1], 1], lambda *index: combine(x(*index[:-1], k), axis=k), name=name)

    return builder.emit_te(compute, x, primfunc_name_hint=f"row_{name}")


# --- gemmlowp/fixedpoint/fixedpoint.h on int64 arrays that hold int32 values ------------------------------------------

_CONSTANT_48_OVER_17 = 1515870810  # Q2.29
_CONSTANT_NEG_32_OVER_17 = -1010580540
_ONE_Q2 = 1 << 29


def _exp_on_negative_values(a: Array) -> Array:
    """Returns exp of a Q5.26 number that is not positive, as Q0.31."""
    mul = saturating_rounding_doubling_high_mul
    quarter = 1 << (31 - _INTEGER_BITS - 2)
    a_mod_quarter = (a & (quarter - 1)) - quarter
    # exp on [-1/4, 0) by a Taylor expansion around -1/8, with x = a + 1/8 in Q0.31.
    x = np.clip(a_mod_quarter << _INTEGER_BITS, -(1 << 31), _INT32_MAX) + (1 << 28)
    x2 = mul(x, x)
    x3, x4 = mul(x2, x), mul(x2, x2)
    series = rounding_divide_by_pot(mul(rounding_divide_by_pot(x4, 2) + x3, 715827883) + x2, 1)
    result = 1895147668 + mul(x + series, 1895147668)
    remainder = a_mod_quarter - a
    for exponent, multiplier in EXP_BARREL_SHIFTER:
        bit = 1 << (31 - _INTEGER_BITS + exponent)
        result = np.where(remainder & bit, mul(result, multiplier), result)
    return np.where(a == 0, _INT32_MAX, result)


def reciprocal(total: Array, integer_bits: int) -> tuple[Array, Array]:
    """GetReciprocal (common.h) of positive numbers with `integer_bits`: 1 / (total / 2**k) in Q0.31, and k, the number
    of bits over the binary point.
    """
    mul = saturating_rounding_doubling_high_mul
    headroom = 32 - np.floor(np.log2(total)).astype(np.int64) - 1
    minus_one = ((total << headroom) & 0xFFFFFFFF) - (1 << 31)
    half_denominator = (minus_one + _INT32_MAX + 1) >> 1  # RoundingHalfSum of numbers that are not negative
    x = _CONSTANT_48_OVER_17 + mul(half_denominator, _CONSTANT_NEG_32_OVER_17)
    for _ in range(3):
        error = _ONE_Q2 - mul(half_denominator, x)
        x = x + np.clip(mul(x, error) << 2, -(1 << 31), _INT32_MAX)
    return np.clip(x << 1, -(1 << 31), _INT32_MAX), integer_bits - headroom


def _reciprocals(total: te.Tensor) -> te.Tensor:
    """Computes the reciprocal once for each row. If the reciprocal were fused into its reader, it would be computed for
    each element.
    """
    return te.compute(total.shape, lambda *index: _lowered_reciprocal(total(*index)), name="reciprocal")


def _lowered_reciprocal(total: Scalar) -> Scalar:
    """`reciprocal` in tensor IR: int64 throughout, so that nothing wraps before it is clipped."""

    def const(value: int) -> Scalar:
        return tirx.const(value, "int64")

    def mul(a: Scalar, b: Scalar) -> Scalar:
        return (a * b + const(1 << 30)) >> const(31)

    def clip(value: Scalar) -> Scalar:
        return tirx.max(tirx.min(value, const(_INT32_MAX)), const(-(1 << 31)))

    headroom = tensors.shift_count(tirx.clz(total).astype("int64"), "int64", 0, 31)
    minus_one = (total.astype("int64") << headroom) - const(1 << 31)
    half_denominator = (minus_one + const(_INT32_MAX) + const(1)) >> const(1)

    x = const(_CONSTANT_48_OVER_17) + mul(half_denominator, const(_CONSTANT_NEG_32_OVER_17))
    for _ in range(3):
        error = const(_ONE_Q2) - mul(half_denominator, x)
        x = x + clip(mul(x, error) << const(2))
    return clip(x << const(1)).astype("int32")
