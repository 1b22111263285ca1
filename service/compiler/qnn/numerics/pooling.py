"""Formulas of pooling windows (average, maximum), and means and sums over whole axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_LARGEST_BYTE = 255


class AveragePool:
    """TFLite's AveragePool (reference/pooling.h and integer_ops/pooling.h): the integer mean of the stored values.

    Halves round away from zero; elements of the padding are not counted. Input and output share one type.
    """

    summary = "(sum + sign * count / 2) / count on stored values, padding not counted"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        self._check(operation)
        ones = np.ones((1, *x.shape[1:3], 1), np.int64)
        total = sum(window for window in windows(operation, x.astype(np.int64), 0))
        count = sum(window for window in windows(operation, ones, 0))
        half = np.where(total > 0, count // 2, -(count // 2))
        mean = np.trunc((total + half) / count).astype(np.int64)
        return store(mean, operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        self._check(operation)
        out_type = operation.per_tensor("out_type")
        total = builder.emit_te(reduction(operation, te.sum, "int32"), padded(operation, builder, x, 0))
        shape = [1, *(int(dim) for dim in list(x.ty.shape)[1:3]), 1]
        counts = sum(window for window in windows(operation, np.ones(shape, np.int32), 0))

        def mean(total: Scalar, count: Scalar) -> Scalar:
            half = tirx.truncdiv(count, tirx.const(2, "int32"))
            nudged = total + tirx.Select(total > tirx.const(0, "int32"), half, -half)
            return clamped(tirx.truncdiv(nudged, count), out_type)

        assert isinstance(counts, np.ndarray)
        if (counts == counts.flat[0]).all():
            count = tirx.const(int(counts.flat[0]), "int32")
            return pointwise(builder, "average", lambda total: mean(total, count), [total])
        return pointwise(builder, "average", mean, [total, relax.const(counts)])

    @staticmethod
    def _check(operation: Operation) -> None:
        operation.require_defined(not operation.flag("count_include_pad"), "TFLite cannot count padding in an average")


class MaxPool:
    """Returns the largest stored value of each window; padding is never the largest."""

    summary = "max of stored values"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        lowest = np.iinfo(x.dtype).min
        largest = np.maximum.reduce(list(windows(operation, x.astype(np.int64), lowest)))
        return store(largest, operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type, storage = operation.per_tensor("out_type"), operation.per_tensor("in_type").storage
        lowest = padded(operation, builder, x, np.iinfo(storage).min)
        largest = builder.emit_te(reduction(operation, te.max, storage), lowest)
        return pointwise(builder, "maximum", lambda value: clamped(value, out_type), [largest])


class FixedPointMean:
    """TFLite's reference kernel (reference/reduce.h, QuantizedMeanOrSum): 1 / count is folded into the multiplier.

    The significand m of s_in / s is replaced by (m << k) / count with k = floor(log2(count)), truncated.
    """

    summary = "z + mul(sum - count * z_in, (m << k) / count) >> k, rounded twice"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        axes, keepdims = mean_axes(operation)
        count = math.prod(x.shape[axis] for axis in axes)
        total = (
            x.astype(np.int64).sum(axis=axes, keepdims=keepdims) - count * operation.per_tensor("in_type").zero_point
        )
        scaled = fixed_point.multiply_by_quantized_multiplier(total, *self.multiplier(operation, count))
        return store(scaled + out_type.zero_point, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        total, count = sum_over_axes(operation, builder, x)
        significand, shift = self.multiplier(operation, count)

        def mean(total: Scalar) -> Scalar:
            centered = total - tirx.const(count * in_type.zero_point, "int32")
            scaled = fixed_point.scale_by(
                centered, tirx.const(significand, "int32"), tirx.const(shift, "int32"), np.array(shift)
            )
            return clamped(scaled + out_type.zero_point, out_type)

        return pointwise(builder, "mean", mean, [total])

    def multiplier(self, operation: Operation, count: int) -> tuple[int, int]:
        """Returns the significand and the shift."""
        ratio = operation.per_tensor("in_type").scale / operation.per_tensor("out_type").scale
        significand, shift = fixed_point.exact_multiplier(ratio)
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        return (significand << extra) // count, fixed_point.machine_shift(shift - extra)


class FixedPointSum:
    """TFLite's reference kernel (reference/reduce.h, QuantizedMeanOrSum), as LiteRT 2.3.0 calls it. The kernel reads
    and writes bytes as uint8, even if the type is int8.

    An int8 value below 0 is therefore read as its value plus 256. The sum is clamped to 0..255, and its byte is stored
    as int8. LiteRT's default kernels compute the sum of the int8 values instead (`FloatSum`).
    """

    summary = (
        "z + mul(sum - count * z_in, m), m ~= s_in / s, rounded twice; int8 read and written as uint8, as in LiteRT"
    )

    def evaluate(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        axes, keepdims = mean_axes(operation)
        count = math.prod(x.shape[axis] for axis in axes)
        total = x.view(np.uint8).astype(np.int64).sum(axis=axes, keepdims=keepdims) - count * in_type.zero_point
        scaled = fixed_point.multiply_by_quantized_multiplier(np.asarray(total), *self._multiplier(operation))
        clamped_sum = np.clip(scaled + out_type.zero_point, 0, _LARGEST_BYTE)
        return np.asarray(clamped_sum.astype(np.uint8).view(out_type.dtype))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        total, count = sum_over_axes(operation, builder, x, as_bytes=True)
        significand, shift = self._multiplier(operation)
        least, most = (tirx.const(bound, "int32") for bound in (0, _LARGEST_BYTE))

        def rescale(total: Scalar) -> Scalar:
            centered = total - tirx.const(count * in_type.zero_point, "int32")
            scaled = fixed_point.scale_by(
                centered, tirx.const(significand, "int32"), tirx.const(shift, "int32"), np.array(shift)
            )
            byte = tirx.max(tirx.min(scaled + tirx.const(out_type.zero_point, "int32"), most), least)
            return byte.astype("uint8").astype(out_type.storage)

        return pointwise(builder, "sum", rescale, [total])

    def _multiplier(self, operation: Operation) -> tuple[int, int]:
        return fixed_point.quantize_multiplier(
            operation.per_tensor("in_type").scale / operation.per_tensor("out_type").scale
        )


class FloatMean:
    """ATen: the sum of the stored values times a float32 factor, plus a float32 bias, rounded to the nearest even."""

    summary = "round_even(float(sum) * (float(s_in / s) * float(1 / count)) + (z - z_in * float(s_in / s)))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        axes, keepdims = mean_axes(operation)
        factor, bias = self.parameters(operation, math.prod(x.shape[axis] for axis in axes))
        total = x.astype(np.int64).sum(axis=axes, keepdims=keepdims)
        mean = total.astype(np.float32) * factor + bias
        return store(round_even(mean).astype(np.int64), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        total, count = sum_over_axes(operation, builder, x)
        factor, bias = (float(value) for value in self.parameters(operation, count))

        def mean(total: Scalar) -> Scalar:
            value = total.astype("float32") * tirx.const(factor, "float32") + tirx.const(bias, "float32")
            return clamped(tirx.nearbyint(value).astype("int32"), out_type)

        return pointwise(builder, "mean", mean, [total])

    def parameters(self, operation: Operation, count: int) -> tuple[np.float32, np.float32]:
        """Returns the factor and the bias."""
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        ratio = np.float32(in_type.scale) / np.float32(out_type.scale)
        bias = np.float32(out_type.zero_point) - np.float32(in_type.zero_point) * ratio
        return np.float32(ratio * (np.float32(1) / np.float32(count))), np.float32(bias)


class CountedMean(FloatMean):
    """XNNPACK: as `FloatMean`, but the bias is computed from the factor, so that the rounding of 1 / count affects
    both.

    xnn_define_static_reduce of qs8/qu8 (reduce-nd.c). The order of the float32 roundings was measured on LiteRT 2.3.0.
    """

    summary = "round_even(float(sum) * f + (z - float(count * z_in) * f)), f = float(s_in / s) * float(1 / count)"

    def parameters(self, operation: Operation, count: int) -> tuple[np.float32, np.float32]:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        factor, _ = super().parameters(operation, count)
        return factor, np.float32(np.float32(out_type.zero_point) - np.float32(count * in_type.zero_point) * factor)


class FloatSum(FloatMean):
    """XNNPACK: the formula of its mean (`CountedMean`), with a count of one (xnn_define_static_reduce). LiteRT's own
    optimized kernel computes the same result.
    """

    summary = "round_even(float(sum) * float(s_in / s) + (z - float(count * z_in) * float(s_in / s)))"

    def parameters(self, operation: Operation, count: int) -> tuple[np.float32, np.float32]:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        ratio = np.float32(in_type.scale) / np.float32(out_type.scale)
        bias = np.float32(out_type.zero_point) - np.float32(count * in_type.zero_point) * ratio
        return np.float32(ratio), np.float32(bias)


def mean_axes(operation: Operation) -> tuple[tuple[int, ...], bool]:
    return tuple(int(axis) for axis in operation.attr("axes")), operation.flag("keepdims")


def sum_over_axes(
    operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, *, as_bytes: bool = False
) -> tuple[relax.Expr, int]:
    """Returns the int32 sum over the operation's axes, and how many elements each sum has. With `as_bytes`, stored
    bytes are read as uint8.
    """
    axes, keepdims = mean_axes(operation)
    extents = [int(dim) for dim in x.ty.shape]

    def compute(x: te.Tensor) -> te.Tensor:
        reduced = {axis: te.reduce_axis((0, extents[axis]), f"r{axis}") for axis in axes}
        kept = [axis for axis in range(len(extents)) if keepdims or axis not in axes]

        def term(*index: Any) -> Scalar:
            at = dict(zip(kept, index, strict=True)) | reduced
            element = x(*(at[axis] for axis in range(len(extents))))
            value = element.astype("uint8").astype("int32") if as_bytes else element.astype("int32")
            return te.sum(value, axis=list(reduced.values()))

        return te.compute([1 if axis in axes else extents[axis] for axis in kept], term, name="sum")

    return builder.emit_te(compute, x, primfunc_name_hint="sum"), math.prod(extents[axis] for axis in axes)


def windows(operation: Operation, x: Array, fill: int) -> Iterator[Array]:
    """Iterates over the positions within a window. For each, yields an array of the elements of `[N, H, W, C]` that all
    windows have at that position.
    """
    top, left, bottom, right = operation.ints("padding", 4, 0)
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    (extent_h, extent_w), (stride_h, stride_w) = operation.ints("pool_size", 2, 1), operation.ints("strides", 2, 1)
    height, width = (int(dim) for dim in list(operation.call.ty.shape)[1:3])
    for i in range(extent_h):
        for j in range(extent_w):
            rows = slice(i, i + (height - 1) * stride_h + 1, stride_h)
            yield padded[:, rows, slice(j, j + (width - 1) * stride_w + 1, stride_w)]


def padded(operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, fill: int) -> relax.Expr:
    top, left, bottom, right = operation.ints("padding", 4, 0)
    if not (top or left or bottom or right):
        return x
    return builder.emit(relax.op.nn.pad(x, [0, 0, top, bottom, left, right, 0, 0], pad_value=fill))


def reduction(operation: Operation, combine: Callable[..., Scalar], dtype: str) -> Callable[[te.Tensor], te.Tensor]:
    extents, (stride_h, stride_w) = operation.ints("pool_size", 2, 1), operation.ints("strides", 2, 1)
    shape: Sequence[int] = [int(dim) for dim in operation.call.ty.shape]

    def compute(x: te.Tensor) -> te.Tensor:
        i, j = (te.reduce_axis((0, extent), name) for extent, name in zip(extents, ("kh", "kw"), strict=True))

        def term(n: Any, h: Any, w: Any, c: Any) -> Scalar:
            return combine(x[n, h * stride_h + i, w * stride_w + j, c].astype(dtype), axis=[i, j])

        return te.compute(shape, term, name="window")

    return compute
