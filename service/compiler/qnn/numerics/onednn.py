"""oneDNN, as MXNet 1.9.1 calls it: every step is float32, and the result is rounded once to the nearest integer, halves
to even.

A primitive converts its accumulators to float32, multiplies them by its output scale, adds its sum post-operation, and
rounds and saturates the result (`store_output` in src/cpu/x64/jit_avx512_core_x8s8s32x_conv_kernel.cpp). MXNet's scales
are reciprocal (steps per unit), and MXNet computes each in float32, in an order of its own. The importer sets the
types' scales so that their quotient is exact; here the quotient is computed in float64 and then rounded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax, tirx

from service.compiler.qnn.expressions.averages import Average, EvenMean
from service.compiler.qnn.expressions.conversions import FAR, Quantization
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.ops import LARGEST
from service.compiler.qnn.expressions.requantization import FusedFloatSum, Requantization
from service.compiler.qnn.expressions.sums import Addition, ScaledAddition
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.expressed import Adds, Converts
from service.compiler.qnn.numerics.formula import (
    ChannelConstant,
    Scalar,
    clamped,
    pointwise,
    store,
)
from service.compiler.qnn.numerics.pooling import AveragesWindows, windows
from service.compiler.qnn.numerics.scaling.affine import Quantizes, broadcast
from service.compiler.qnn.numerics.scaling.requantize import FloatRequantize
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_WIDEST = 255  # the largest magnitude of a byte minus its zero point


class RatioRequantize(FloatRequantize):
    """Output scales of convolutions and inner products, and reorders that convert one type to another.

    oneDNN adds a convolution's int32 bias after the conversion to float32; up to 2**24 the result is the same.
    """

    summary = "z + round_even(clamp(float(acc) * float(s_in / s)))"

    def scales(self, operation: Operation) -> Array:
        """Returns s_in / s in float64, rounded to float32."""
        return ratios(operation.quantized("in_type"), operation.per_tensor("out_type"))


class PostSum(Converts):
    """A convolution with a sum post-operation: the residual is added before the result is rounded to an integer."""

    summary = "z + round_even(fma(r - z_r, float(s_r / s), float(acc) * float(s_in / s)))"

    def evaluate(self, operation: Operation, x: Array, residual: Array) -> Array:
        residual_type, out_type = operation.per_tensor("residual_type"), operation.per_tensor("out_type")
        factors, residual_factor = self.factors(operation)
        product = (x.astype(np.float32) * factors).astype(np.float64)
        centered = residual.astype(np.int64) - residual_type.zero_point
        return _rounded(product + centered * np.float64(residual_factor), out_type)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, residual: relax.Expr
    ) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        scaling = self.requantization(operation, UNKNOWN, None)

        def total(value: Scalar, other: Scalar, *channels: Scalar) -> Scalar:
            scaled = scaling.express(TENSORS, value, (*channels, other.astype("int32")))
            return clamped(scaled + out_type.zero_point, out_type)

        axis = operation.quantized("in_type").axis
        constants = [ChannelConstant(each, axis) for each in scaling.arrays]
        return pointwise(builder, "requantize_add", total, [x, residual], constants)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        scales, residual_scale = self.factors(operation)
        bounded = facts.fits(scales, float(_WIDEST * residual_scale))
        zero_point = facts.zero_point(operation.per_tensor("residual_type"))
        return FusedFloatSum(scales, np.full(1, residual_scale, np.float32), zero_point, bounded)

    def factors(self, operation: Operation) -> tuple[Array, np.float32]:
        """Returns the factors of the accumulators, and of the residual."""
        out_type = operation.per_tensor("out_type")
        of_residual = ratios(operation.per_tensor("residual_type"), out_type)
        return ratios(operation.quantized("in_type"), out_type), np.float32(of_residual[0])


class ScaledSum(Adds):
    """The sum primitive: both operands scaled and added in float32."""

    summary = "z + round_even(fma(b - z_b, float(s_b / s), float(a - z_a) * float(s_a / s)))"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = (operation.per_tensor(name) for name in ("lhs_type", "rhs_type", "out_type"))
        lhs, rhs = self.factors(operation)
        product = ((a.astype(np.int64) - lhs_type.zero_point).astype(np.float32) * lhs).astype(np.float64)
        return _rounded(product + (b.astype(np.int64) - rhs_type.zero_point) * np.float64(rhs), out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        own, other = (float(each) for each in self.factors(operation))
        limited = not (own + other) * _WIDEST < LARGEST
        if residual_is_lhs:
            own, other = other, own
        residual_type = operation.per_tensor("lhs_type" if residual_is_lhs else "rhs_type")
        return ScaledAddition(own, other, facts.zero_point(residual_type), residual_is_lhs, limited)

    def factors(self, operation: Operation) -> tuple[np.float32, np.float32]:
        """Returns the factors of both operands."""
        out_type = operation.per_tensor("out_type")
        lhs, rhs = (ratios(operation.per_tensor(name), out_type)[0] for name in ("lhs_type", "rhs_type"))
        return np.float32(lhs), np.float32(rhs)


class Reorder(Quantizes):
    """A reorder from float32: multiplies by the reciprocal of the scale. The reciprocal is computed in float64 and
    rounded to float32.
    """

    summary = "z + round_even(x * float(1 / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.quantized("out_type")
        factors, zero_points = broadcast(replace(out_type, scales=tuple(self.factors(out_type).tolist())), x.ndim)
        # Beyond 2**40 every storage type saturates; clipping first keeps infinities away from the conversion.
        return store(round_even(np.clip(x * factors, -(2.0**40), 2.0**40)).astype(np.int64) + zero_points, out_type)

    def quantization(self, out_type: QuantizedType, facts: Facts) -> Quantization:
        return Quantization(float(self.factors(out_type)[0]), -FAR, FAR, *facts.ends(out_type))

    def factors(self, out_type: QuantizedType) -> Array:
        """Returns the number of steps in one unit, for each scale."""
        return (1 / np.array(out_type.scales)).astype(np.float32)


class FloatAveragePool(AveragesWindows):
    """The int8 pooling primitive (`jit_uni_i8i8_pooling.cpp`): the sum times the float32 reciprocal of the count.

    Padding is not counted. If a model counts the padding, the importer adds the padding to the image as zeros.
    """

    summary = "z + round_even(float(sum - count * z) * float(1 / count)), padding not counted"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        centered = x.astype(np.int64) - out_type.zero_point
        total = sum(window for window in windows(operation, centered, 0))
        counts = sum(windows(operation, np.ones((1, *x.shape[1:3], 1), np.int32), 0))
        reciprocal = np.float32(1) / np.asarray(counts).astype(np.float32)
        mean = round_even(np.asarray(total).astype(np.float32) * reciprocal).astype(np.int64)
        return store(mean + out_type.zero_point, out_type)

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        operation.require_defined(
            not operation.flag("count_include_pad"), "counts its padding, which must be part of the image"
        )
        return EvenMean(facts.zero_point(operation.per_tensor("in_type")))


def ratios(in_type: QuantizedType, out_type: QuantizedType) -> Array:
    """Returns the scales of `in_type` divided by those of `out_type`: one, or one for each channel."""
    return (np.array(in_type.scales, np.float64) / out_type.scale).astype(np.float32)


def _rounded(total: Array, out_type: QuantizedType) -> Array:
    """Rounds a float32 sum that is represented in float64. float64 is precise enough for the result to equal that of a
    fused multiply-add.
    """
    low, high = out_type.min - out_type.zero_point, out_type.max - out_type.zero_point
    return store(
        round_even(np.clip(total.astype(np.float32), low, high)).astype(np.int64) + out_type.zero_point, out_type
    )


def _lowered(total: Scalar, out_type: QuantizedType) -> Scalar:
    low, high = (tirx.const(float(bound - out_type.zero_point), "float32") for bound in (out_type.min, out_type.max))
    bounded = tirx.max(tirx.min(total.astype("float32"), high), low)
    return clamped(tirx.nearbyint(bounded).astype("int32") + out_type.zero_point, out_type)


def _double(value: float | np.float32) -> Scalar:
    return tirx.const(float(value), "float64")
