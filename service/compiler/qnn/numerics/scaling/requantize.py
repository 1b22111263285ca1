"""Conversions of accumulators, or of one quantized type, to another quantized type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.requantization import (
    BiasedFloatScale,
    DoubleRounding,
    FloatScale,
    Requantization,
    SingleRounding,
)
from service.compiler.qnn.numerics.expressed import Requantizes
from service.compiler.qnn.numerics.formula import ChannelConstant, Index, Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import VECTORIZED, Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_CONVOLUTIONS = ("qnn.conv2d", "qnn.conv2d_transpose")


class TwoRoundings(Requantizes):
    """TFLite's reference kernels for convolutions and for conversions between quantized types. Their multiplier has 31
    bits.

    ConvPerChannel (reference/integer_ops/conv.h) and Requantize (reference/requantize.h); the multiplier s_x * s_w / s
    is computed in double (PopulateConvolutionQuantizationParams).
    """

    summary = "z + div_pot(high_mul(acc, m), -e), m * 2**(e - 31) ~= s_x * s_w / s: rounded twice, halves away"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        significands, shifts = multipliers(operation)
        values = x.astype(np.int64) - np.array(in_type.zero_points)
        scaled = fixed_point.multiply_by_quantized_multiplier(values, significands, shifts)
        return store(scaled + out_type.zero_point, out_type)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, bias: relax.Expr | None = None
    ) -> relax.Expr:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        if in_type.scales == out_type.scales:
            return shifted(builder, x, in_type, out_type)
        return super().lower(operation, builder, x)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        return DoubleRounding(*multipliers(operation), bounded=bool((facts.magnitudes < 1 << 30).all()))


class OneRounding(Requantizes):
    """TFLite's reference kernel of dense layers: the same multiplier, applied in 64 bits and rounded once, halves
    away from zero.

    Measured on LiteRT 2.3.0 (FullyConnected and FullyConnectedPerChannel of its reference kernels).
    """

    summary = (
        "z + ((acc * m + (1 << (30 - e)) - (acc < 0)) >> (31 - e)), m * 2**(e - 31) ~= s_x * s_w / s: "
        "rounded once, halves away"
    )

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        significands, shifts = (values.astype(np.int64) for values in multipliers(operation))
        total = x.astype(np.int64) * significands + (np.int64(1) << (30 - shifts)) - (x < 0)
        return store((total >> (31 - shifts)) + out_type.zero_point, out_type)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        return SingleRounding(*multipliers(operation))


class HalvesUp:
    """LiteRT's optimized kernels on x86-64, which compute the operators that the default delegate does not. The
    multiplier is that of the reference kernels, but vector instructions also round halves up in the second rounding.

    Subclasses define which elements scalar code computes; it rounds away from zero. Measured on LiteRT 2.3.0: in matrix
    multiplications by ruy (FULLY_CONNECTED, CONV_2D in one group), scalar code computes none.
    """

    summary = "z + ((high_mul(acc, m) + (1 << (-e - 1))) >> -e), m * 2**(e - 31) ~= s_x * s_w / s: halves up, twice"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        significands, shifts = multipliers(operation)
        values = x.astype(np.int64) - np.array(in_type.zero_points)
        up = fixed_point.multiply_rounding_up(values, significands, shifts)
        away = fixed_point.multiply_by_quantized_multiplier(values, significands, shifts)
        scalar = np.broadcast_to(self.in_scalar_code(operation, np.indices(x.shape, sparse=True), x.shape), x.shape)
        return store(np.where(scalar, away, up) + out_type.zero_point, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        significands, shifts = multipliers(operation)
        shape = [int(dim) for dim in x.ty.shape]

        def scale(value: Scalar, significand: Scalar, shift: Scalar, index: Sequence[Scalar]) -> Scalar:
            centered = value.astype("int32") - in_type.zero_point
            scalar = self.in_scalar_code(operation, [i.astype("int64") for i in index], shape)
            minus_one, zero = tirx.const(-1, "int32"), tirx.const(0, "int32")
            away = zero if scalar is False else tirx.Select(scalar, minus_one, zero)
            scaled = tensors.scale_by(centered, significand, shift, shifts, away)
            return clamped(scaled + out_type.zero_point, out_type)

        constants = [ChannelConstant(values, in_type.axis) for values in (significands, shifts)]
        return pointwise(builder, "requantize", scale, [x], [*constants, Index()])

    def in_scalar_code(self, operation: Operation, index: Sequence[Any], shape: Sequence[int]) -> Any:
        """Returns true if the element at `index` (one number for each axis) is computed by scalar code."""
        return False


class ChannelVectors(HalvesUp):
    """Like `HalvesUp`, but channels after the last whole vector of 8 channels round away from zero: DEPTHWISE_CONV_2D
    and TRANSPOSE_CONV of int8. Measured on LiteRT 2.3.0.
    """

    summary = f"{HalvesUp.summary}; the last channels % 8 away from zero"
    LANES = 8

    def in_scalar_code(self, operation: Operation, index: Sequence[Any], shape: Sequence[int]) -> Any:
        return index[-1] >= shape[-1] - shape[-1] % self.LANES


class ElementVectors(HalvesUp):
    """Like `HalvesUp`, but elements of the tensor after its last whole vector of 16 elements round away from zero:
    TRANSPOSE_CONV of uint8, and QUANTIZE from int8 to uint8 and back. Measured on LiteRT 2.3.0.
    """

    summary = f"{HalvesUp.summary}; the last elements % 16 away from zero"
    LANES = 16

    def in_scalar_code(self, operation: Operation, index: Sequence[Any], shape: Sequence[int]) -> Any:
        count = operation.integer("elements")  # the elements of one sample; a batch contains several samples
        position: Any = 0
        for i, extent in zip(index, shape, strict=True):
            position = position * extent + i
        return position % count >= count - count % self.LANES


class FloatRequantize(Requantizes):
    """XNNPACK: one float32 multiplication, rounded once to the nearest even integer.

    xnn_qs8_requantize_fp32 and the qs8/qc8w/qu8 GEMM, IGEMM and depthwise micro-kernels. The scale is computed in
    float32: s_x * s_w first, then the division (subgraph/convolution-2d.c). The product is clamped before it is
    rounded.
    """

    summary = "z + round_even(clamp(float(acc) * float(s_x * s_w / s)))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        low, high = out_type.min - out_type.zero_point, out_type.max - out_type.zero_point
        with np.errstate(invalid="ignore", over="ignore"):  # 0 times an infinite scale is NaN, which is stored as `low`
            scaled = (x.astype(np.int64) - in_type.zero_point).astype(np.float32) * self.scales(operation)
            rounded = round_even(np.clip(scaled, low, high)).astype(np.int64)
        return store(rounded + out_type.zero_point, out_type)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        scales = self.scales(operation)
        return FloatScale(scales, facts.fits(scales))

    def scales(self, operation: Operation) -> Array:
        """Returns the factors, float32."""
        return float_scales(operation)


class BiasedFloatRequantize(FloatRequantize):
    """MLAS's requantization of QLinearConv, which is `FloatRequantize`. With a bias of real values, ONNX Runtime
    computes in float32 on dequantized values and rounds every sum; this formula rounds once.
    """

    adds_bias = True
    summary = "z + round_even(clamp(fma(float(acc), float(s_x * s_w / s), bias / s)))"

    def evaluate(self, operation: Operation, x: Array, bias: Array | None = None) -> Array:
        if bias is None:
            return super().evaluate(operation, x)
        in_type, out_type = operation.quantized("in_type"), operation.per_tensor("out_type")
        low, high = out_type.min - out_type.zero_point, out_type.max - out_type.zero_point
        centered = (x.astype(np.int64) - in_type.zero_point).astype(np.float32)
        scaled = fma(centered, self.scales(operation), self.addends(operation, bias))
        return store(round_even(np.clip(scaled, low, high)).astype(np.int64) + out_type.zero_point, out_type)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        if bias is None:
            return super().requantization(operation, facts, bias)
        scales, addends = self.scales(operation), self.addends(operation, bias)
        return BiasedFloatScale(scales, addends, facts.fits(scales, addends))

    def addends(self, operation: Operation, bias: Array) -> Array:
        """Returns the bias in steps of the result, float32 `[C]`."""
        return bias / np.float32(operation.per_tensor("out_type").scale)


class SharedMultiplier:
    """XNNPACK's conversion of one quantized type to another: the multiplier is a fraction of 8 bits, and the product is
    rounded once, halves up (qs8/qu8 vcvt micro-kernels).

    The multiplier is round_even(256 * float(s_in / s)).
    """

    summary = "(q * m - z_in * m + (z << 8) + 128) >> 8, m = round_even(256 * float(s_in / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        multiplier, bias = self.parameters(operation)
        return store((x.astype(np.int64) * multiplier + bias) >> 8, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        if in_type.scales == out_type.scales:
            return shifted(builder, x, in_type, out_type)
        multiplier, bias = self.parameters(operation)

        def convert(value: Scalar) -> Scalar:
            return clamped((value.astype("int32") * multiplier + bias) >> 8, out_type)

        return pointwise(builder, "requantize", convert, [x])

    def parameters(self, operation: Operation) -> tuple[int, int]:
        """Returns the multiplier, and the bias, which contains both zero points and one half."""
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        multiplier = round(256 * float(float_scales(operation)[0]))  # round() rounds halves to even
        return multiplier, (out_type.zero_point << 8) + 128 - multiplier * in_type.zero_point


def multipliers(operation: Operation) -> tuple[Array, Array]:
    """Returns TFLite's significands and shifts, one pair for each scale of the input.

    A uint8 convolution rounds s_x * s_w to float32 first (GetQuantizedConvolutionMultipler); this changes the result
    for 2 of 100 photographs. The code tests the type of the output, because Legalize may have changed the storage of
    the operands.
    """
    out_type, producer = operation.per_tensor("out_type"), operation.producer
    scales = operation.quantized("in_type").scales
    convolved = operation.name == VECTORIZED or (producer is not None and producer.name in _CONVOLUTIONS)
    if convolved and out_type.dtype == "uint8":
        scales = tuple(float(np.float32(scale)) for scale in scales)
    return fixed_point.quantize_multipliers(scale / out_type.scale for scale in scales)


def float_scales(operation: Operation) -> Array:
    """Returns s_x * s_w / s, each step rounded to float32; infinity if it exceeds float32."""
    with np.errstate(over="ignore"):
        scales = np.array(operation.quantized("in_type").scales).astype(np.float32)
        return np.asarray(scales / np.float32(operation.per_tensor("out_type").scale))


def shifted(builder: relax.BlockBuilder, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType) -> relax.Expr:
    """Emits a conversion between two types of equal scale. Only the zero point changes, so the mode's rounding does not
    matter.
    """
    shift = out_type.zero_point - in_type.zero_point
    return pointwise(builder, "shift", lambda value: clamped(value.astype("int32") + shift, out_type), [x])
