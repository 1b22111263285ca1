"""PyTorch's quantized kernels: float32 throughout, the nearest integer, halves to even.

The sources are ATen's native/quantized/cpu (kernels/QuantizedOpKernels.cpp, fbgemm_utils.cpp) and FBGEMM's QuantUtils.
The order in which results are rounded was measured on PyTorch 2.13.0, with AVX-512.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from service.compiler.locating import Declined
from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.averages import Average, EvenMean, FusedMean
from service.compiler.qnn.expressions.conversions import FAR, Quantization
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.ops import LARGEST
from service.compiler.qnn.expressions.requantization import BiasedScale, DequantizedScale, FloatScale, Requantization
from service.compiler.qnn.expressions.sums import Addition, FloatSum
from service.compiler.qnn.numerics.elementwise import binary_types
from service.compiler.qnn.numerics.expressed import Adds, Averages, Chooses, Requantizes
from service.compiler.qnn.numerics.formula import (
    ChannelConstant,
    Scalar,
    clamped,
    pointwise,
    store,
)
from service.compiler.qnn.numerics.pooling import padded, reduction, windows
from service.compiler.qnn.numerics.scaling.affine import Quantizes, broadcast
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.scaling.requantize import shifted
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_FAR = float(1 << 30)  # beyond the range of every 8-bit storage type
VECTOR_CHANNELS = 16  # channels that average pooling processes at once
FUSED_CHANNELS = 8  # channels that adaptive average pooling processes at once


class FbgemmRequantize(Requantizes):
    """FBGEMM (requantizeOutputProcessingAvx2, and its AVX-512 and depthwise variants): the bias is added in float32.

    Per channel, the bias is divided by s_x * s_w. Per tensor, it is multiplied by the reciprocal, in one fused
    multiply-add.
    """

    adds_bias = True
    summary = "z + round_even((float(acc) + bias / float(s_x * s_w)) * float(s_x * s_w / s))"

    def evaluate(self, operation: Operation, x: Array, bias: Array | None = None) -> Array:
        out_type = operation.per_tensor("out_type")
        scales, addends, factors = self.parameters(operation, bias)
        total = fma(addends, factors, x.astype(np.float32))
        return stored(total * scales, out_type)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        scales, addends, factors = self.parameters(operation, bias)
        with np.errstate(over="ignore"):
            bounded = facts.fits(scales, addends * factors * scales)
        if not addends.any():
            return FloatScale(scales, bounded)
        return BiasedScale(scales, addends, None if (factors == 1).all() else factors, bounded)

    def parameters(self, operation: Operation, bias: Array | None) -> tuple[Array, Array, Array]:
        """Returns the scale, the addend and the addend's factor, each `[C]` or `[1]` float32."""
        in_type = operation.quantized("in_type")
        products = np.array(in_type.scales).astype(np.float32)
        scales = products / np.float32(operation.per_tensor("out_type").scale)
        if bias is None:
            return scales, np.zeros(1, np.float32), np.ones(1, np.float32)
        if in_type.axis is None:
            return scales, bias, np.float32(1) / products
        return scales, bias / products, np.ones(1, np.float32)


class OneDnnRequantize(Requantizes):
    """oneDNN's int8 convolutions and inner products as ATen calls them. These primitives compute real values, and add
    the zero point before rounding. The order was measured, because oneDNN generates its `_mm512` code at run time.
    """

    adds_bias = True
    summary = "round_even((float(acc) * s_x * s_w + bias) * float(1 / s) + z)"

    def evaluate(self, operation: Operation, x: Array, bias: Array | None = None) -> Array:
        out_type = operation.per_tensor("out_type")
        in_scale, weight_scales, factor = self.parameters(operation)
        real = x.astype(np.float32) * in_scale * weight_scales + (np.float32(0) if bias is None else bias)
        scaled = np.clip(real * factor, -_FAR, _FAR) + np.float32(out_type.zero_point)
        return store(round_even(scaled).astype(np.int64), out_type)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        in_scale, weight_scales, factor = self.parameters(operation)
        addends = np.zeros(1, np.float32) if bias is None else bias
        zero_point = np.array([operation.per_tensor("out_type").zero_point])
        return DequantizedScale(np.array([in_scale]), weight_scales, addends, np.array([factor]), zero_point)

    def parameters(self, operation: Operation) -> tuple[np.float32, Array, np.float32]:
        """Returns s_x, s_w and 1 / s in float32. ATen passes the reciprocals of the scales, and oneDNN's wrapper
        inverts them again.
        """
        layer = operation.producer
        operation.require_defined(layer is not None, "does not follow a convolution or dense layer")
        assert layer is not None
        scales = np.array(layer.quantized("weight_type").scales)
        weight_scales = _inverted_twice(scales) if layer.name == "qnn.dense" else scales.astype(np.float32)
        in_scale = _inverted_twice(np.array(layer.per_tensor("in_type").scale))
        return np.float32(in_scale), weight_scales, np.float32(1 / operation.per_tensor("out_type").scale)


def _inverted_twice(scales: Array) -> Array:
    return np.asarray(np.float32(1) / (1 / scales).astype(np.float32))


class ByGroups(Chooses):
    """PyTorch's engine `x86` on a CPU with AVX512-VNNI: FBGEMM for more than 100 groups, and otherwise oneDNN
    (`should_use_onednn_quant` in OnednnUtils.h).
    """

    adds_bias = True
    MOST_GROUPS = 100
    summary = "up to 100 groups as oneDNN, beyond as FBGEMM"

    def chosen(self, operation: Operation) -> FbgemmRequantize | OneDnnRequantize:
        layer = operation.producer
        assert layer is not None
        symmetric = not any(layer.quantized("weight_type").zero_points)
        return OneDnnRequantize() if layer.integer("groups") <= self.MOST_GROUPS and symmetric else FbgemmRequantize()


class FusedQuantize(Quantizes):
    """`quantize_per_tensor`: FBGEMM's Quantize, which multiplies, adds the zero point and rounds in one fused step."""

    summary = "round_even(fma(x, float(1 / s), z))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.quantized("out_type")
        scales, zero_points = broadcast(out_type, x.ndim)
        near = np.clip(x, -_FAR * scales, _FAR * scales)
        scaled = fma(near, np.float32(1) / scales, zero_points.astype(np.float32))
        return store(round_even(scaled).astype(np.int64), out_type)

    def factors(self, out_type: QuantizedType) -> Array:
        return np.asarray(np.float32(1) / np.array(out_type.scales, np.float32))

    def quantization(self, out_type: QuantizedType, facts: Facts) -> Quantization:
        _, low, high = facts.ends(out_type)
        ends = facts.bias(out_type), low, high
        factor = float(self.factors(out_type)[0])
        return Quantization(factor, -FAR, FAR, *ends, first_zero_point=out_type.zero_points[0])


class Rescale:
    """Converts stored values from one quantized type to another (`dequantize_val`, then `quantize_val`)."""

    summary = "z + round_even(s_in * (q - z_in) * float(1 / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        return rescaled(x, operation.per_tensor("in_type"), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return lowered_rescale(builder, x, operation.per_tensor("in_type"), operation.per_tensor("out_type"))


class FloatAdd(Adds):
    """`qadd_kernel`: both operands are dequantized by a fused multiply-add, s * q + (-z * s)."""

    summary = "z + round_even((fma(s_a, a, -za * s_a) + fma(s_b, b, -zb * s_b)) * float(1 / s))"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)

        def real(values: Array, quantized: QuantizedType) -> Array:
            scale, offset = (np.array(each, np.float32) for each in self.parameters(quantized))
            return fma(values.astype(np.int64) - self.centre(quantized), scale, offset)

        return stored((real(a, lhs_type) + real(b, rhs_type)) * reciprocal(out_type), out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        value_type, residual_type, out_type = binary_types(operation)
        if residual_is_lhs:
            value_type, residual_type = residual_type, value_type
        terms = *self.parameters(value_type), *self.parameters(residual_type)
        factor = float(reciprocal(out_type))
        limited = 256 * (value_type.scale + residual_type.scale) * factor >= LARGEST
        zero_point = value_type.zero_point - self.centre(value_type)
        return FloatSum(zero_point, facts.bias(residual_type) + self.centre(residual_type), terms, factor, limited)

    @staticmethod
    def centre(quantized: QuantizedType) -> int:
        """Returns the integer that is subtracted from a stored value before the multiplication."""
        return 0

    @staticmethod
    def parameters(quantized: QuantizedType) -> tuple[float, float]:
        """Returns the factor of a stored value, and the term that is added to the product."""
        scale = np.float32(quantized.scale)
        return float(scale), float(scale * np.float32(-quantized.zero_point))


class FloatConcatenate:
    """`quantized::cat`: parts whose type differs from the output's are rescaled."""

    summary = f"copies; a part of another type becomes {Rescale.summary}"

    def evaluate(self, operation: Operation, *parts: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        moved = [
            rescaled(part, in_type, out_type) for part, in_type in zip(parts, operation.quantized_parts(), strict=True)
        ]
        return np.concatenate(moved, operation.integer("axis"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *parts: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        moved = [
            builder.emit(lowered_rescale(builder, part, in_type, out_type))
            for part, in_type in zip(parts, operation.quantized_parts(), strict=True)
        ]
        return relax.op.concat(moved, operation.integer("axis"))


class EvenAverage(Averages):
    """`qavg_pool2d_nhwc_kernel`: the sum times float(1 / count).

    For channels that fill a whole vector, the zero point is subtracted before averaging. The remaining channels are
    averaged as they are stored; if the zero point is odd, a half is then rounded in the direction opposite to that of
    whole vectors.
    """

    summary = "z + round_even((sum - count * z) * float(1 / count)); z is 0 for the last channels % 16"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        centres = self.centres(operation, x.shape[-1])
        total = sum(windows(operation, x.astype(np.int64) - centres, 0))
        counts = sum(windows(operation, np.ones((1, *x.shape[1:3], 1), np.int64), 0))
        mean = np.asarray(total).astype(np.float32) * (np.float32(1) / np.asarray(counts).astype(np.float32))
        return store(round_even(mean).astype(np.int64) + centres, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        shape = [int(dim) for dim in x.ty.shape]
        total = builder.emit_te(reduction(operation, te.sum, "int32"), padded(operation, builder, x, 0))
        counts = np.asarray(sum(windows(operation, np.ones((1, *shape[1:3], 1), np.int32), 0)))
        factors = np.float32(1) / counts.astype(np.float32)

        def mean(total: Scalar, count: Scalar, factor: Scalar, centre: Scalar) -> Scalar:
            centred = (total - count * centre).astype("float32")
            return clamped(tirx.nearbyint(centred * factor).astype("int32") + centre, out_type)

        operands = [total, relax.const(counts, "int32"), relax.const(factors, "float32")]
        return pointwise(builder, "average", mean, operands, [ChannelConstant(self.centres(operation, shape[-1]), 3)])

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        # If a mean is halfway between two integers, the result depends on the rounding error of 1 / count, and on
        # whether the zero point is even.
        centres = self.centres(operation, operation.tensor(0)[0][-1])
        if (centres != centres[0]).any():
            raise Declined("its last channels, which do not fill a vector, are rounded in another way")
        return EvenMean(int(centres[0]) + facts.bias(operation.per_tensor("in_type")))

    @staticmethod
    def centres(operation: Operation, channels: int) -> Array:
        """Returns the value that is subtracted from each channel: int32 `[C]`."""
        whole = channels - channels % VECTOR_CHANNELS
        return np.where(np.arange(channels) < whole, operation.per_tensor("in_type").zero_point, 0).astype(np.int32)


class AdaptiveAverage(Averages):
    """`_qadaptive_avg_pool_kernel` (QuantizedOpKernels.cpp), for images with channels last, which is the layout that
    convolutions produce. The zero point is added before rounding to an integer, so halves are rounded to the even
    stored value.

    The order was measured on PyTorch 2.13.0: blocks of `FUSED_CHANNELS` channels use fused multiply-adds. For the
    remaining channels, the product is rounded before the addition.
    """

    summary = "round_even(fma(sum - count * z, 1 / float(1 / float(1 / count)), z)); no fma for the last channels % 8"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type, (factor, count) = operation.per_tensor("out_type"), self.parameters(operation)
        total = sum(windows(operation, x.astype(np.int64), 0)) - count * operation.per_tensor("in_type").zero_point
        centred, point = np.asarray(total).astype(np.float32), np.float32(out_type.zero_point)
        mean = np.where(self.fused(x.shape[-1]), fma(centred, factor, point), centred * factor + point)
        return store(np.rint(mean).astype(np.int64), out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type, (factor, count) = operation.per_tensor("out_type"), self.parameters(operation)
        total = builder.emit_te(reduction(operation, te.sum, "int32"), x)
        scale, point = tirx.const(float(factor), "float32"), tirx.const(float(out_type.zero_point), "float32")
        centre = tirx.const(count * operation.per_tensor("in_type").zero_point, "int32")

        def mean(total: Scalar, is_fused: Scalar) -> Scalar:
            centred = (total - centre).astype("float32")
            apart = centred * scale + point
            value = tirx.Select(is_fused > 0, tensors.fma(centred, scale, point), apart)
            return clamped(tirx.nearbyint(value).astype("int32"), out_type)

        mask = self.fused(int(x.ty.shape[-1])).astype(np.int32)
        return pointwise(builder, "average", mean, [total], [ChannelConstant(mask, 3)])

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        if not self.fused(operation.tensor(0)[0][-1]).all():
            raise Declined("its last channels, which do not fill a vector, are rounded in another way")
        scale, _ = self.parameters(operation)
        in_type = operation.per_tensor("in_type")
        return FusedMean(float(scale), in_type.zero_point, facts.zero_point(in_type))

    @staticmethod
    def parameters(operation: Operation) -> tuple[np.float32, int]:
        """Returns the factor, and the number of elements of a window."""
        rows, columns = operation.ints("pool_size", 2, 1)
        one = np.float32(1)
        return np.float32(one / (one / (one / np.float32(rows * columns)))), rows * columns

    @staticmethod
    def fused(channels: int) -> Array:
        """Returns, for each channel, whether it uses a fused multiply-add: bool `[C]`."""
        return np.arange(channels) < channels - channels % FUSED_CHANNELS


def reciprocal(quantized: QuantizedType) -> np.float32:
    return np.float32(1 / quantized.scale)  # for a float32 scale, this equals float32's own division


def rescaled(x: Array, in_type: QuantizedType, out_type: QuantizedType) -> Array:
    """Converts stored values of one type to another type."""
    if in_type.scale == out_type.scale:
        return store(x.astype(np.int64) + (out_type.zero_point - in_type.zero_point), out_type)
    real = (x.astype(np.int64) - in_type.zero_point).astype(np.float32) * np.float32(in_type.scale)
    return stored(real * reciprocal(out_type), out_type)


def lowered_rescale(
    builder: relax.BlockBuilder, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType
) -> relax.Expr:
    """`rescaled` in Relax."""
    if in_type.scale == out_type.scale:
        return shifted(builder, x, in_type, out_type)
    scale, factor = (tirx.const(float(each), "float32") for each in (in_type.scale, reciprocal(out_type)))

    def rescale(value: Scalar) -> Scalar:
        real = (value.astype("int32") - in_type.zero_point).astype("float32") * scale
        return rounded(real * factor, out_type)

    return pointwise(builder, "rescale", rescale, [x])


def stored(scaled: Array, out_type: QuantizedType) -> Array:
    """Rounds float32 values in steps of `out_type`, halves to even, and stores them."""
    return store(round_even(np.clip(scaled, -_FAR, _FAR)).astype(np.int64) + out_type.zero_point, out_type)


def rounded(scaled: Scalar, out_type: QuantizedType) -> Scalar:
    """`stored` in tensor IR."""
    return clamped(tirx.nearbyint(bounded(scaled)).astype("int32") + out_type.zero_point, out_type)


def bounded(value: Scalar) -> Scalar:
    far = tirx.const(_FAR, "float32")
    return tirx.max(tirx.min(value, far), -far)
