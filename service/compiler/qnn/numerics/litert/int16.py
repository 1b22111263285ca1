"""Formulas of LiteRT's kernels on 16-bit activations (16x8: int8 weights, 64-bit sums, zero points of 0).

No delegate computes these operators, so LiteRT runs the same kernels in both modes. There are three exceptions:
`Quantize`, dense layers without a bias, and the logistic function and tanh for scales that are certain powers of two.
The delegate's mode refuses the logistic function and tanh for such scales.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.rescaling import Double, Reduced, Rescaling
from service.compiler.qnn.numerics.expressed import Chooses, Rescales
from service.compiler.qnn.numerics.formula import (
    OPAQUE,
    ChannelConstant,
    Scalar,
    clamped,
    pointwise,
    store,
)
from service.compiler.qnn.numerics.functions.softmax import look_up, row_reduce
from service.compiler.qnn.numerics.functions.unary import Tabulated
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.requantize import TwoRoundings
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

_LOW, _HIGH = STORAGE_RANGES["int16"]
_INT32_LIMIT = float(1 << 31)


class ReducedMultiplier(Rescales):
    """Convolutions: the multiplier is truncated to 15 bits, so that its product with a 48-bit sum fits. The product is
    rounded once, halves up.

    ConvPerChannel (reference/integer_ops/conv.h) on MultiplyByQuantizedMultiplier of int64 (internal/common.cc).
    """

    summary = "(acc * r + (1 << (14 - e))) >> (15 - e), r = (m + (1 << 15)) >> 16, m * 2**(e - 31) ~= s_x * s_w / s"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        multipliers, counts = self.parameters(operation)
        scaled = (x.astype(np.int64) * multipliers + (np.int64(1) << (counts - 1))) >> counts
        return store(scaled.astype(np.int32), operation.per_tensor("out_type"))

    def rescaling(self, operation: Operation) -> Rescaling:
        return Reduced(*self.parameters(operation))

    def parameters(self, operation: Operation) -> tuple[Array, Array]:
        """Returns the reduced multipliers and the shift counts, int64."""
        out_scale = operation.per_tensor("out_type").scale
        significands, shifts = fixed_point.quantize_multipliers(
            scale / out_scale for scale in operation.quantized("in_type").scales
        )
        operation.require_defined(bool((shifts < 8).all()), "LiteRT's kernel cannot scale by 128 or more")
        significands = significands.astype(np.int64)
        reduced = np.where(significands < 0x7FFF0000, (significands + (1 << 15)) >> 16, 0x7FFF)
        return reduced, 15 - shifts.astype(np.int64)


class ByAccumulator(Chooses):
    """Convolutions: `ReducedMultiplier` on 64-bit sums. If the bias has 32 bits, sums have 32 bits, which wrap around,
    and are requantized like those of 8-bit values.
    """

    summary = f"{ReducedMultiplier.summary}; with a 32-bit bias {TwoRoundings.summary}"

    def chosen(self, operation: Operation) -> ReducedMultiplier | TwoRoundings:
        return TwoRoundings() if operation.quantized("in_type").storage == "int32" else ReducedMultiplier()


class DoubleScale(Rescales):
    """Dense layers: one multiplication in float64, rounded halves away from zero.

    FullyConnectedPerChannel and FullyConnected with scales (reference/integer_ops/fully_connected.h). A product beyond
    32 bits becomes the smallest integer, as x86 converts it.
    """

    summary = "round_away(double(acc) * (s_x * s_w / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        product = x.astype(np.float64) * self.scales(operation)
        rounded = np.trunc(product) + np.sign(product) * (np.abs(product - np.trunc(product)) >= 0.5)
        beyond = np.abs(rounded) >= _INT32_LIMIT
        return store(np.where(beyond, -_INT32_LIMIT, rounded).astype(np.int64), operation.per_tensor("out_type"))

    def rescaling(self, operation: Operation) -> Rescaling:
        return Double(self.scales(operation))

    def scales(self, operation: Operation) -> Array:
        """Returns s_x * s_w / s in float64: one value, or one for each channel."""
        return np.array(operation.quantized("in_type").scales) / operation.per_tensor("out_type").scale


class HalvesUp:
    """Dense layers without a bias, by LiteRT's optimized kernel: 32-bit sums, which wrap, and a 31-bit multiplier,
    rounded twice.

    Measured on LiteRT 2.3.0, x86-64 (FullyConnectedPerChannel and FullyConnected of
    optimized/integer_ops/fully_connected.h, on ruy). If all channels have one scale, the multiplier is a float32
    product (GetQuantizedConvolutionMultipler).
    """

    summary = "(high_mul(int32(acc), m) + (1 << (-e - 1))) >> -e, m * 2**(e - 31) ~= s_x * s_w / s: halves up"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        significands, shifts = (values.astype(np.int64) for values in self.multipliers(operation))
        left, right = np.maximum(shifts, 0), np.maximum(-shifts, 0)
        scaled = (x.astype(np.int64) << left).astype(np.int32).astype(np.int64) * significands
        high = (scaled + (1 << 30)) >> 31
        return store((high + ((np.int64(1) << right) >> 1)) >> right, operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        significands, shifts = self.multipliers(operation)
        right = np.maximum(-shifts, 0)

        def scale(value: Scalar, significand: Scalar, left: Scalar, right: Scalar, half: Scalar) -> Scalar:
            shifted = value.astype("int32") << tensors.shift_count(left, "int32", 0, 30)
            high = tensors.high_mul(shifted, significand).astype("int64")
            rounded = (high + half) >> tensors.shift_count(right, "int64", 0, 31)
            return clamped(rounded.astype("int32"), out_type)

        halves = (np.int64(1) << right.astype(np.int64)) >> 1
        arrays = (significands, np.maximum(shifts, 0), right.astype(np.int64), halves)
        constants = [ChannelConstant(values, in_type.axis) for values in arrays]
        return pointwise(builder, "requantize", scale, [x], constants)

    def multipliers(self, operation: Operation) -> tuple[Array, Array]:
        """Returns significands and shifts: one of each, or one for each channel."""
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        scales = in_type.scales if in_type.axis is not None else (float(np.float32(in_type.scale)),)
        return fixed_point.quantize_multipliers(scale / out_type.scale for scale in scales)


class OptimizedDense(Chooses):
    """Dense layers in LiteRT's default configuration: with a 64-bit bias the reference kernel, and with a 32-bit bias
    or without one the optimized kernel.
    """

    summary = f"{DoubleScale.summary}; without a 64-bit bias {HalvesUp.summary}"

    def chosen(self, operation: Operation) -> DoubleScale | HalvesUp:
        wide = operation.quantized("in_type").storage == "int64"
        biased = wide and operation.producer is not None and len(operation.producer.call.args) == 3
        return DoubleScale() if biased else HalvesUp()


class InterpolatedSoftmax:
    """SoftmaxInt16 (reference/softmax.h): exp and reciprocal are interpolated between 513 points (LUTLookup).

    The output has the fixed scale 1/32768. Differences from the row's maximum are mapped to the table's range, [-10,
    0].
    """

    summary = "interpolated tables: Q0.15 exp of a difference above -10, Q16.15 sum, Q0.15 reciprocal, rounded once"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        exponentials = self._table(operation)[x.max(axis=-1, keepdims=True).astype(np.int64) - x]
        total = exponentials.sum(axis=-1, keepdims=True)
        bits = np.floor(np.log2(total)).astype(np.int64) + 1
        shifted = ((total << (31 - bits)) + (1 << 13)) >> 14
        reciprocal = _reciprocals()[np.clip(shifted - 3 * (1 << 15), _LOW, _HIGH) - _LOW]
        count = bits - 1
        scaled = (exponentials * reciprocal + (np.int64(1) << (count - 1))) >> count
        return store(np.maximum(scaled, 0), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        exponentials = look_up(builder, x, self._table(operation).astype(np.int32))
        total = row_reduce(builder, exponentials, te.sum, "sum")

        def invert(total: te.Tensor, table: te.Tensor) -> te.Tensor:
            def element(*index: Any) -> Scalar:
                value = total(*index)
                left = tensors.shift_count(tirx.clz(value).astype("int64") - 1, "int64", 0, 30)
                shifted = ((value.astype("int64") << left) + (1 << 13)) >> tirx.const(14, "int64")
                position = shifted - 3 * (1 << 15) - _LOW
                return table[tirx.max(tirx.min(position, tirx.const(_HIGH - _LOW, "int64")), tirx.const(0, "int64"))]

            return te.compute(total.shape, element, name="reciprocal")

        table = relax.const(_reciprocals().astype(np.int32))
        inverse = builder.emit(builder.call_te(invert, total, table, primfunc_attrs={"op_pattern": OPAQUE}))

        def normalize(exponential: Scalar, total: Scalar, inverse: Scalar) -> Scalar:
            one = tirx.const(1, "int32")
            count = tensors.shift_count(tirx.const(31, "int32") - tirx.clz(total), "int32", 1, 30)
            scaled = (exponential * inverse + (one << (count - one))) >> count
            return clamped(tirx.max(scaled, tirx.const(0, "int32")), out_type)

        return pointwise(builder, "normalize", normalize, [exponentials, total, inverse])

    def _table(self, operation: Operation) -> Array:
        """Returns exp(-s_in * beta * d) for d in 0..65535, Q0.15 (SoftMaxCalculateExp)."""
        scale = np.float32(operation.per_tensor("in_type").scale) * np.float32(operation.floating("beta"))
        multiplier = fixed_point.quantize_multiplier(float(scale) / (10.0 / 65535.0))
        scaled = fixed_point.multiply_by_quantized_multiplier(-np.arange(1 << 16), *multiplier)
        return np.asarray(_exponentials()[np.clip(scaled + _HIGH, _LOW, _HIGH) - _LOW])


class Interpolated(Tabulated):
    """LOGISTIC and TANH (reference/integer_ops/logistic.h, tanh.h): interpolated between values of one table.

    Scales are converted to multiples of 3 / 2**14. A scale that is a power of two is converted exactly (SigmoidPrepare,
    TanhPrepare in kernels/activations.cc). For such scales, LiteRT's optimized kernels compute different results.
    """

    def __init__(self, *, exact_shifts: tuple[int, ...], optimized: bool) -> None:
        """`exact_shifts`: log2 of 4096 times each scale that is exact. With `optimized`, these scales are refused."""
        self.exact_shifts, self.optimized = exact_shifts, optimized

    def steps(self, operation: Operation, x: Array) -> Array:
        """Returns `x` in steps of 1 / (3 * 4096), the unit of the table."""
        scale = operation.per_tensor("in_type").scale
        exponent = fixed_point.power_of_two(scale)
        if exponent is not None and exponent + 12 in self.exact_shifts:
            operation.require_defined(
                not self.optimized, f"LiteRT uses a kernel that is not reproduced for the scale {scale}"
            )
            return x * (3 << (exponent + 12))
        multiplier, shift = scale * 4096.0 * 3.0, 0
        while multiplier <= _HIGH / 2.0 and shift <= 30:
            multiplier, shift = multiplier * 2.0, shift + 1
        return (x * int(multiplier) + ((1 << shift) >> 1)) >> shift


class InterpolatedLogistic(Interpolated):
    summary = "sigmoid(i / 24) in 16 bits, interpolated linearly with 9 bits"

    def __init__(self, *, optimized: bool) -> None:
        super().__init__(exact_shifts=(0,), optimized=optimized)

    def values(self, operation: Operation, x: Array) -> Array:
        steps = self.steps(operation, x)
        result = np.where(np.abs(steps) >> 9 >= 255, 0x7FFF << 10, _sigmoid(np.abs(steps), 9))
        return np.where(steps >= 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1) >> 10


class InterpolatedTanh(Interpolated):
    summary = "2 * sigmoid(2 * i / 24) - 1 in 16 bits, interpolated linearly with 8 bits"

    def __init__(self, *, optimized: bool) -> None:
        super().__init__(exact_shifts=(0, 1), optimized=optimized)

    def values(self, operation: Operation, x: Array) -> Array:
        steps = self.steps(operation, x)
        result = np.where(np.abs(steps) >> 8 >= 255, 0xFFFF << 8, _sigmoid(np.abs(steps), 8)) - (1 << 23)
        return np.where(steps >= 0, result + (1 << 7), -result + (1 << 7) - 1) >> 8


# --- tables ----------------------------------------------------------------------------------------------------------

# Indices at which `sigmoid_table_uint16` (internal/common.h) is one more than the rounded value that the comment there
# describes.
_ONE_MORE = [
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45, 46, 49,
    50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
]  # fmt: skip


@cache
def _sigmoid_table() -> Array:
    table = np.rint((1 << 16) / (1 + np.exp(-np.arange(256) / 24))).astype(np.int64)
    table[_ONE_MORE] += 1
    return table


def _sigmoid(steps: Array, bits: int) -> Array:
    """Interpolates in the table, whose points are `2**bits` steps apart. The caller handles steps after point 255."""
    table, point = _sigmoid_table(), np.minimum(steps >> bits, 254)
    return np.asarray((table[point] << bits) + (steps & ((1 << bits) - 1)) * (table[point + 1] - table[point]))


@cache
def _exponentials() -> Array:
    """Returns exp at every int16 as a point of [-10, 0], Q0.15."""
    return _interpolated(np.exp, 10.0 / 65535.0, _HIGH)


@cache
def _reciprocals() -> Array:
    """Returns 1 / (1 + x) at every int16 as a point of [0, 1], Q0.15."""
    return _interpolated(lambda x: 1.0 / (1.0 + x), 1.0 / 65535.0, _LOW)


def _interpolated(function: Callable[[Array], Array], in_scale: float, zero_point: int) -> Array:
    """LUTPopulate in double and LUTLookup of int16 (internal/common.h), for every int16. There are 512 linear pieces;
    each is shifted by half of its error in the middle. The output is a 15-bit fraction.
    """
    low, high = in_scale * (_LOW - zero_point), in_scale * (_HIGH - zero_point)
    step = (high - low) / 512
    at = low + np.arange(513) * step
    out_scale = 2.0 / 65535.0
    scale = 65536 / (out_scale * _HIGH - out_scale * _LOW)
    value, middle = function(at) * scale, np.floor(function(at[:-1] + step / 2) * scale + 0.5)
    rounded = np.floor(value + 0.5)
    error = np.floor((value[1:] + rounded[:-1]) / 2 + 0.5) - middle
    bias = np.trunc(error / 2 + np.copysign(0.5, error))
    points = np.clip(np.append(rounded[:-1] - bias, rounded[-1]), _LOW, _HIGH).astype(np.int64)
    every = np.arange(_LOW, _HIGH + 1)
    base, offset = points[256 + (every >> 7)], every & 0x7F
    return np.asarray(base + (((points[257 + (every >> 7)] - base) * offset + 64) >> 7))
