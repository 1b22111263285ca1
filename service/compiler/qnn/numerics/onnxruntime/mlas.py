"""The arithmetic of ONNX Runtime's CPU kernels on x86-64 with AVX2 or more (MLAS): float32, rounded once, halves to
even.

Compilers may contract products and sums to fused multiply-adds. Where they do was measured on ONNX Runtime 1.31.1, and
is written out here.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions.averages import Average, FloatWindow, ScaledMean
from service.compiler.qnn.expressions.conversions import Quantization
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.ops import LARGEST
from service.compiler.qnn.expressions.pairs import Arithmetic, Product
from service.compiler.qnn.expressions.requantization import ShiftedProduct
from service.compiler.qnn.expressions.sums import Addition, FusedSum
from service.compiler.qnn.numerics.elementwise import binary_types, product_scale, zero_points
from service.compiler.qnn.numerics.expressed import Adds, Averages, Computes
from service.compiler.qnn.numerics.formula import (
    Scalar,
    clamped,
    pointwise,
    store,
)
from service.compiler.qnn.numerics.pooling import AveragesAxes, average_sums, mean_axes, padded, reduction, windows
from service.compiler.qnn.numerics.scaling import affine
from service.compiler.qnn.numerics.scaling.affine import Quantizes, broadcast
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.scaling.requantize import shifted
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_LARGEST_RATIO = 1 << 20  # the ratio of two scales up to which every sum fits the int32 to which MLAS rounds
_LARGEST_PRODUCT_RATIO = 1 << 14  # the largest ratio for products
_BEYOND_INT32 = 2.0**31


class _BlockedQuantize(affine.Quantize):
    """QuantizeLinear in blocks that are not along the last axis (core/providers/cpu/quantization/quantize_linear.cc): a
    quotient beyond 32 bits becomes the smallest integer of 32 bits, to which the zero point is added.
    """

    def __init__(self) -> None:
        super().__init__(reciprocal=False, overflows=True)

    def _rounded(self, ratio: Array) -> Array:
        return np.asarray(round_even(ratio))

    def quantization(self, out_type: QuantizedType, facts: Facts) -> Quantization:
        return replace(super().quantization(out_type, facts), away=False)


_BLOCKED = _BlockedQuantize()


def _is_blocked(out_type: QuantizedType) -> bool:
    """Returns true for blocks along another axis than the last. Each index of the last axis then has its own scale."""
    return out_type.blocks is not None and dict(out_type.blocks).get(len(out_type.grid) - 1) == 1


class Quantize(Quantizes):
    """MlasQuantizeLinear (mlas/lib/quantize.cpp): divides in float32, clamps the quotient, then rounds it. Blocks
    that are not along the last axis are an exception (`_BlockedQuantize`).
    """

    summary = "z + round_even(clamp(x / s)); blocks along other axes than the last wrap around beyond 32 bits"

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        is_blocked = _is_blocked(operation.quantized("out_type"))
        return _BLOCKED.lower(operation, builder, x) if is_blocked else super().lower(operation, builder, x)

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.quantized("out_type")
        if _is_blocked(out_type):
            return _BLOCKED.evaluate(operation, x)
        scales, zero_points = broadcast(out_type, x.ndim)
        with np.errstate(over="ignore"):
            ratio = x / scales
        # MINPS and MAXPS return their second operand for NaN. Here, the second operand is the bound.
        low, high = out_type.min - zero_points, out_type.max - zero_points
        bounded = np.minimum(np.where(ratio > low, ratio, low), high)
        return store(round_even(bounded).astype(np.int64) + zero_points, out_type)

    def factors(self, out_type: QuantizedType) -> Array:
        return np.array(out_type.scales, np.float32)

    def quantization(self, out_type: QuantizedType, facts: Facts) -> Quantization:
        least, largest = (float(end - out_type.zero_points[0]) for end in (out_type.min, out_type.max))
        factor = float(self.factors(out_type)[0])
        return Quantization(factor, least, largest, *facts.ends(out_type), divides=True, nan_is_low=True)


class Rescale:
    """A DequantizeLinear directly followed by a QuantizeLinear of another type. If the operators between the two only
    move elements, the pair also becomes a `Rescale`.
    """

    summary = "z + round_even(clamp(float(s_in * (q - z_in)) / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        return rescaled(x, operation.per_tensor("in_type"), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        return _lowered_rescale(builder, x, operation.per_tensor("in_type"), operation.per_tensor("out_type"))


class Concatenate:
    """QLinearConcat (contrib_ops/cpu/quantization/qlinear_concat.cc): a table for each part, as in `Rescale`."""

    summary = f"copies; a part of another type becomes {Rescale.summary}"

    def evaluate(self, operation: Operation, *parts: Array) -> Array:
        in_types, out_type = operation.quantized_parts(), operation.per_tensor("out_type")
        values = [rescaled(part, in_type, out_type) for part, in_type in zip(parts, in_types, strict=True)]
        return np.concatenate(values, operation.integer("axis"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, *parts: relax.Expr) -> relax.Expr:
        in_types, out_type = operation.quantized_parts(), operation.per_tensor("out_type")
        values = [
            builder.emit(_lowered_rescale(builder, part, in_type, out_type))
            for part, in_type in zip(parts, in_types, strict=True)
        ]
        return relax.op.concat(values, operation.integer("axis"))


class Add(Adds):
    """QLinearAdd (mlas/lib/intrinsics/avx2/qladd_avx2.cpp), with the fused multiply-adds that its compiler generated.

    If one operand is repeated along the last axis, MLAS takes that operand as the second one, and importers do so too.
    A sum beyond 32 bits becomes the smallest value, as x86 converts it (CVTPS2DQ).
    """

    summary = (
        "round_even(fma(a, s_a / s, fma(b, s_b / s, z - fma(s_a / s, z_a, s_b / s * z_b)))); "
        "the smallest beyond 32 bits"
    )

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs, rhs, fixed = self.parameters(operation)
        total = fma(a.astype(np.float32), lhs, fma(b.astype(np.float32), rhs, fixed))
        return store(_rounded(total), operation.per_tensor("out_type"))

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        value_type, residual_type, out_type = binary_types(operation)
        ratio, of_residual, fixed = self.parameters(operation)
        if residual_is_lhs:
            value_type, residual_type = residual_type, value_type
            ratio, of_residual = of_residual, ratio
        points = value_type.zero_point, out_type.zero_point
        bias, overflows = facts.bias(residual_type), self.overflows(operation)
        return FusedSum((ratio, of_residual), fixed, points, bias, residual_is_lhs, overflows)

    def parameters(self, operation: Operation) -> tuple[float, float, float]:
        """Returns the scale ratio of each operand, and the constant term, which contains the zero points."""
        lhs_type, rhs_type, out_type = binary_types(operation)
        scale = np.float32(out_type.scale)
        with np.errstate(over="ignore", invalid="ignore"):
            lhs, rhs = np.float32(lhs_type.scale) / scale, np.float32(rhs_type.scale) / scale
            product = np.float32(rhs * np.float32(rhs_type.zero_point))
            fixed = np.float32(out_type.zero_point) - fma(lhs, np.float32(lhs_type.zero_point), product)
        return float(lhs), float(rhs), float(fixed)

    def overflows(self, operation: Operation) -> bool:
        """Returns true if a sum may exceed the range of 32 bits."""
        lhs, rhs, _ = self.parameters(operation)
        return not max(lhs, rhs) < _LARGEST_RATIO


class Mul(Computes):
    """QLinearMul (mlas/lib/qlmul.cpp). A product beyond 32 bits becomes the smallest value, as in `Add`."""

    summary = "round_even(float((a - z_a) * (b - z_b)) * float(s_a * s_b / s) + z); the smallest beyond 32 bits"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)
        product = (a.astype(np.int64) - lhs_type.zero_point) * (b.astype(np.int64) - rhs_type.zero_point)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = product.astype(np.float32) * np.float32(self.scale(operation)) + np.float32(out_type.zero_point)
        return store(_rounded(scaled), out_type)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        zero_point, overflows = operation.per_tensor("out_type").zero_point, self.overflows(operation)
        scaling = ShiftedProduct(self.scale(operation), zero_point, overflows)
        return Product(scaling, zero_points(operation, facts))

    def scale(self, operation: Operation) -> float:
        """Returns s_a * s_b / s, each step in float32."""
        return product_scale(operation)

    def overflows(self, operation: Operation) -> bool:
        """Returns true if a product may leave 32 bits."""
        return not self.scale(operation) < _LARGEST_PRODUCT_RATIO


class GlobalAverage(AveragesAxes):
    """QLinearGlobalAveragePool (mlas/lib/qlgavgpool.cpp): an integer sum, scaled once."""

    summary = "z + round_even(clamp(float(sum - n * z_in) * float(s_in / float(s * n))))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        axes, keepdims = mean_axes(operation)
        count = math.prod(x.shape[axis] for axis in axes)
        centered = x.astype(np.int64) - operation.per_tensor("in_type").zero_point
        scaled = centered.sum(axis=axes, keepdims=keepdims).astype(np.float32) * self.factor(operation, count)
        low, high = out_type.min - out_type.zero_point, out_type.max - out_type.zero_point
        return store(round_even(np.clip(scaled, low, high)).astype(np.int64) + out_type.zero_point, out_type)

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        factor, zero_point = self.factor(operation, count), facts.zero_point(operation.per_tensor("out_type"))
        limited = not 256 * count * float(factor) < LARGEST
        return ScaledMean(float(factor), count * facts.zero_point(operation.per_tensor("in_type")), zero_point, limited)

    def factor(self, operation: Operation, count: int) -> np.float32:
        """Returns s_in / (s * count) as float32."""
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        return np.float32(np.float32(in_type.scale) / (np.float32(out_type.scale) * np.float32(count)))


class WindowAverage(Averages):
    """QLinearAveragePool (contrib_ops/cpu/quantization/qlinear_pool.cc): real values are added in float32, row by row
    from the top left, and divided by their number.
    """

    summary = "round_even(float(sum(s_in * (q - z_in)) / n) / s + z), the sum in order"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        reals = (x.astype(np.float32) - np.float32(in_type.zero_point)) * np.float32(in_type.scale)
        total: Array = np.zeros(1, np.float32)
        for window in windows(operation, reals, 0):
            total = total + window
        return self.stored(total / self.counts(operation, x.shape), out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type = operation.per_tensor("in_type")
        scale = tirx.const(in_type.scale, "float32")

        def real(value: Scalar) -> Scalar:
            return (value.astype("int32") - in_type.zero_point).astype("float32") * scale

        reals = builder.emit(pointwise(builder, "reals", real, [x], alone=True))
        total = builder.emit_te(reduction(operation, te.sum, "float32"), padded(operation, builder, reals, 0))
        counts = self.counts(operation, [int(dim) for dim in x.ty.shape])

        average = self.average(operation, UNKNOWN, math.prod(operation.ints("pool_size", 2, 1)))
        return average_sums(operation, builder, average, total, counts.astype(np.int32), UNKNOWN)

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        limited = not 256 * in_type.scale / out_type.scale < LARGEST
        window = count if operation.flag("count_include_pad") else None
        types = in_type.scale, in_type.zero_point, out_type.scale, out_type.zero_point
        return FloatWindow(*types, facts.bias(in_type), window, self.multiplier(out_type), limited)

    def multiplier(self, out_type: QuantizedType) -> float | None:
        """Returns the factor by which means are multiplied, or None if they are divided by the output's scale."""
        return None

    def stored(self, mean: Array, out_type: QuantizedType) -> Array:
        """Converts real means to stored values of the output."""
        ratio = mean / np.float32(out_type.scale) + np.float32(out_type.zero_point)
        return store(round_even(ratio).astype(np.int64), out_type)

    def counts(self, operation: Operation, shape: tuple[int, ...] | list[int]) -> Array:
        """Returns the number of elements in each window: `[1, OH, OW, 1]` float32."""
        extents = operation.ints("pool_size", 2, 1)
        height, width = (int(dim) for dim in list(operation.call.ty.shape)[1:3])
        if operation.flag("count_include_pad"):
            return np.full((1, height, width, 1), math.prod(extents), np.float32)
        ones = np.ones((1, *shape[1:3], 1), np.float32)
        return np.asarray(sum(windows(operation, ones, 0)), np.float32)


def _rounded(values: Array) -> Array:
    """Rounds float32 to int64, halves to even. Values beyond 32 bits and NaN become the smallest integer of 32 bits."""
    with np.errstate(invalid="ignore"):
        rounded = round_even(values)
    fits = (rounded < _BEYOND_INT32) & (rounded >= -_BEYOND_INT32)
    return np.where(fits, rounded, np.float32(-_BEYOND_INT32)).astype(np.int64)


def rescaled(x: Array, in_type: QuantizedType, out_type: QuantizedType) -> Array:
    """The arithmetic of `Rescale`."""
    if (in_type.scale, in_type.zero_point) == (out_type.scale, out_type.zero_point):
        return store(x.astype(np.int64), out_type)
    reals = (x.astype(np.float32) - np.float32(in_type.zero_point)) * np.float32(in_type.scale)
    low, high = out_type.min - out_type.zero_point, out_type.max - out_type.zero_point
    with np.errstate(over="ignore"):
        ratio = np.clip(reals / np.float32(out_type.scale), low, high)
    return store(round_even(ratio).astype(np.int64) + out_type.zero_point, out_type)


def _lowered_rescale(
    builder: relax.BlockBuilder, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType
) -> relax.Expr:
    # a product divided by one of its factors is at most one unit in the last place off
    if in_type.scale == out_type.scale:
        return shifted(builder, x, in_type, out_type)
    scale, out_scale = tirx.const(in_type.scale, "float32"), tirx.const(out_type.scale, "float32")
    zero_point = tirx.const(out_type.zero_point, "int32")

    def rescale(value: Scalar) -> Scalar:
        real = (value.astype("int32") - in_type.zero_point).astype("float32") * scale
        return _quantized(real / out_scale, zero_point, out_type)

    return pointwise(builder, "rescale", rescale, [x])


def _quantized(ratio: Scalar, zero_point: Scalar, out_type: QuantizedType) -> Scalar:
    """Clamps, rounds and adds the zero point. NaN becomes the smallest value."""
    low, high = ((tirx.const(bound, "int32") - zero_point).astype("float32") for bound in (out_type.min, out_type.max))
    bounded = tirx.min(tirx.max(ratio, low), high)  # compare and select, so that NaN becomes the bound
    return clamped(tirx.nearbyint(bounded).astype("int32") + zero_point, out_type)
