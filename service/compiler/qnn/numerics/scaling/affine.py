"""Conversions between real values and storage, and concatenation of tensors of different types."""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.conversions import FAR, Quantization
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.requantization import FloatValues, Requantization
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.expressed import Converts
from service.compiler.qnn.numerics.formula import (
    Scalar,
    clamped,
    parameter,
    pointwise,
    store,
)
from service.compiler.qnn.numerics.scaling import rounding
from service.compiler.qnn.numerics.scaling.requantize import shifted
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_INT32 = 1 << 31
_LARGEST_INT32_FLOAT = float(np.nextafter(np.float32(2.0**31), np.float32(0)))


class Quantizes:
    """A formula that quantizes real values."""

    def quantization(self, out_type: QuantizedType, facts: Facts) -> Quantization:
        """Returns the expression, with the factor and the zero point of the first channel."""
        raise NotImplementedError

    def factors(self, out_type: QuantizedType) -> Array:
        """Returns the factor of each channel or block, float32."""
        raise NotImplementedError

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.quantized("out_type")
        quantization = self.quantization(out_type, UNKNOWN)

        def quantize(value: Scalar, factor: Scalar, zero_point: Scalar) -> Scalar:
            numbers = quantization.numbers_of(TENSORS, factor, zero_point)
            return quantization.express(TENSORS, value, numbers).astype(out_type.dtype)

        constants = [
            parameter(list(self.factors(out_type)), "float32", out_type),
            parameter(out_type.zero_points, "int32", out_type),
        ]
        return pointwise(builder, "quantize", quantize, [x], constants)


class Quantize(Quantizes):
    """Quantizes float32 to storage, in float32 arithmetic.

    TFLite (reference/quantize.h, AffineQuantize) divides and rounds halves away from zero; XNNPACK (f32-qs8-vcvt)
    multiplies by the reciprocal and rounds halves to even. XNNPACK's kernels for x86 first take the minimum with the
    largest value by MINPS, which returns its second operand for NaN, so NaN becomes the largest value.
    """

    def __init__(self, *, reciprocal: bool, overflows: bool = False) -> None:
        """
        Args:
            reciprocal: true to multiply by the reciprocal as XNNPACK does, false to divide as TFLite does.
            overflows: true if a quotient beyond 32 bits, or NaN, becomes -2**31, as x86 converts it; the zero point is
                then added in 32 bits. Otherwise the quotient is clamped.
        """
        self.reciprocal, self.overflows = reciprocal, overflows
        formula = "z + round_even(x * float(1 / s))" if reciprocal else "z + round_away(x / s)"
        self.summary = f"{formula}; beyond 32 bits the least value, or the largest if z < 0" if overflows else formula

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.quantized("out_type")
        scales, zero_points = broadcast(out_type, x.ndim)
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = x * (np.float32(1) / scales) if self.reciprocal else x / scales
        if self.overflows:
            fits = np.abs(ratio) < _INT32
            rounded = self._rounded(np.where(fits, ratio, 0)).astype(np.int64)
            total = np.where(fits, rounded, -_INT32) + zero_points
            return store(total.astype(np.int32), out_type)  # wraps around in 32 bits
        ratio = np.where(np.isnan(ratio), np.float32(np.inf), ratio)
        # Beyond 2**40 every storage type saturates; clipping first keeps infinities away from the conversion.
        return store(self._rounded(np.clip(ratio, -(2.0**40), 2.0**40)).astype(np.int64) + zero_points, out_type)

    def _rounded(self, ratio: Array) -> Array:
        return np.asarray(round_even(ratio) if self.reciprocal else round_away(ratio))

    def factors(self, out_type: QuantizedType) -> Array:
        scales = np.array(out_type.scales, np.float32)
        return np.float32(1) / scales if self.reciprocal else scales

    def quantization(self, out_type: QuantizedType, facts: Facts) -> Quantization:
        factor, ends = float(self.factors(out_type)[0]), facts.ends(out_type)
        if self.reciprocal and not self.overflows:
            return Quantization(factor, -FAR, FAR, *ends)
        limit = int32_bound(out_type) if self.overflows else None
        overflow = FAR if out_type.zero_points[0] < 0 else -FAR
        divides = not self.reciprocal
        return Quantization(factor, -FAR, FAR, *ends, divides=divides, away=divides, limit=limit, overflow=overflow)


def int32_bound(out_type: QuantizedType) -> float:
    """Returns the bound of quotients, as float32: adding the zero point overflows for quotients from the bound on, and
    for those at or below its negative.
    """
    return _LARGEST_INT32_FLOAT if max(out_type.zero_points) > _INT32 - 1 - _LARGEST_INT32_FLOAT else float(_INT32)


class Dequantize(Converts):
    """Converts storage to float32: the difference of integers as a float32, times a float32 scale.

    32-bit sums are therefore rounded twice. ONNX Runtime (DequantizeLinear in quantize_linear.cc, and QGemm and
    MatMulIntegerToFloat in mlas/lib/qpostprocessor.cpp), PyTorch (dequantize_val in AffineQuantizer.cpp) and oneDNN's
    output scales do the same. LiteRT's DEQUANTIZE takes at most 16 bits.
    """

    summary = "float(q - z) * float(s)"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        scales, zero_points = broadcast(operation.quantized("in_type"), x.ndim)
        wide = np.int64 if x.dtype == np.int64 else np.int32
        return np.asarray((x.astype(wide) - zero_points.astype(wide)).astype(np.float32) * scales)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type = operation.quantized("in_type")
        wide = "int64" if in_type.dtype == "int64" else "int32"

        def dequantize(value: Scalar, scale: Scalar, zero_point: Scalar) -> Scalar:
            return (value.astype(wide) - zero_point).astype("float32") * scale

        constants = [
            parameter(in_type.scales, "float32", in_type),
            parameter(in_type.zero_points, wide, in_type),
        ]
        return pointwise(builder, "dequantize", dequantize, [x], constants)

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        """Returns the conversion of accumulators, which have no zero point."""
        return FloatValues(np.array(operation.quantized("in_type").scales, np.float32))


class StorageCast:
    """Returns the same integers."""

    summary = "q"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        return x

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return x


class Concatenate:
    """TFLite's ConcatenationWithScaling (reference/concatenation.h): parts of another type are rescaled in float32.

    round_away(q * f - z_in * f) + z with f = s_in * float(1 / s); parts of the output's own type are copied.
    """

    summary = "copies; a part of another type becomes z + round_away(q * f - z_in * f), f = s_in * float(1 / s)"

    def evaluate(self, operation: Operation, *parts: Array) -> Array:
        in_types, out_type = operation.quantized_parts(), operation.per_tensor("out_type")
        rescaled = []
        for part, in_type in zip(parts, in_types, strict=True):
            if _same_values(in_type, out_type):
                rescaled.append(part.astype(np.int64))
                continue
            factor, bias = _rescale(in_type, out_type)
            rounded = round_away(part.astype(np.float32) * factor + bias)
            rescaled.append(rounded.astype(np.int64) + out_type.zero_point)
        return store(np.concatenate(rescaled, operation.integer("axis")), out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *parts: relax.Expr) -> relax.Expr:
        in_types, out_type = operation.quantized_parts(), operation.per_tensor("out_type")
        rescaled = [
            builder.emit(self._rescaled(builder, part, in_type, out_type))
            for part, in_type in zip(parts, in_types, strict=True)
        ]
        return relax.op.concat(rescaled, operation.integer("axis"))

    def _rescaled(
        self, builder: relax.BlockBuilder, part: relax.Expr, in_type: QuantizedType, out_type: QuantizedType
    ) -> relax.Expr:
        if _same_values(in_type, out_type):
            return shifted(builder, part, in_type, out_type)
        factor, bias = (float(value) for value in _rescale(in_type, out_type))

        def rescale(value: Scalar) -> Scalar:
            product = value.astype("float32") * tirx.const(factor, "float32")
            rounded = tensors.rounded_away(product + tirx.const(bias, "float32"))
            return clamped(rounded.astype("int32") + out_type.zero_point, out_type)

        return pointwise(builder, "rescale", rescale, [part])


def round_away(values: Array) -> Array:
    """Rounds to the nearest integer, halves away from zero, as C's round does."""
    whole = np.trunc(values)
    if rounding.is_watched():
        rounding.report_ties(np.abs(values - whole) == 0.5)
    return np.asarray(whole + np.sign(values) * (np.abs(values - whole) >= 0.5))


def _same_values(in_type: QuantizedType, out_type: QuantizedType) -> bool:
    return (in_type.scales, in_type.zero_points) == (out_type.scales, out_type.zero_points)


def _rescale(in_type: QuantizedType, out_type: QuantizedType) -> tuple[np.float32, np.float32]:
    factor = np.float32(in_type.scale) * (np.float32(1) / np.float32(out_type.scale))
    return factor, np.float32(-in_type.zero_point) * factor


def broadcast(quantized: QuantizedType, rank: int) -> tuple[Array, Array]:
    """Returns scales (float32) and zero points (int64) in shapes that broadcast over a tensor of `rank` dimensions."""

    def broadcast(values: Array) -> Array:
        if quantized.blocks is None:
            return values.reshape([-1 if axis == quantized.axis else 1 for axis in range(rank)])
        values = values.reshape(quantized.grid)
        for dimension, size in quantized.blocks:
            values = np.repeat(values, size, dimension)
        return values

    return broadcast(np.array(quantized.scales, np.float32)), broadcast(np.array(quantized.zero_points, np.int64))
