"""Formulas of pooling windows (average, maximum), and means and sums over whole axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.averages import Average, FixedMean, IntegerMean, RoundedMean
from service.compiler.qnn.expressions.facts import UNKNOWN, Facts
from service.compiler.qnn.expressions.ops import LARGEST
from service.compiler.qnn.expressions.pairs import rounded_twice
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.expressed import Averages
from service.compiler.qnn.numerics.formula import Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.scaling import fixed_point
from service.compiler.qnn.numerics.scaling.affine import round_away
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_LARGEST_BYTE = 255


class AveragesWindows(Averages):
    """A formula that averages the elements of pooling windows."""

    facts: ClassVar[Facts] = UNKNOWN

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        total = builder.emit_te(reduction(operation, te.sum, "int32"), padded(operation, builder, x, 0))
        average = self.average(operation, self.facts, math.prod(operation.ints("pool_size", 2, 1)))
        ones = np.ones((1, *(int(dim) for dim in list(x.ty.shape)[1:3]), 1), np.int32)
        return average_sums(
            operation, builder, average, total, np.asarray(sum(windows(operation, ones, 0))), self.facts
        )


class AveragesAxes(Averages):
    """A formula that averages all elements along axes."""

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        total, count = sum_over_axes(operation, builder, x)
        average = self.average(operation, UNKNOWN, count)
        return average_sums(operation, builder, average, total, np.array([count]), UNKNOWN)


def average_sums(
    operation: Operation, builder: relax.BlockBuilder, average: Average, total: relax.Expr, counts: Array, facts: Facts
) -> relax.Expr:
    """Emits an average of the sums `total` of `counts` elements each, which are added as the model stores them."""
    out_type, bias = operation.per_tensor("out_type"), facts.bias(operation.per_tensor("in_type"))
    numbers = [tirx.const(number, "int32") for number in average.parameters]

    def mean(total: Scalar, count: Scalar) -> Scalar:
        stored = total + count * bias if bias else total
        return clamped(average.express(TENSORS, stored, count, numbers) - bias, out_type)

    if (counts == counts.flat[0]).all():
        count = tirx.const(int(counts.flat[0]), "int32")
        return pointwise(builder, "average", lambda total: mean(total, count), [total])
    return pointwise(builder, "average", mean, [total, relax.const(counts)])


class AveragePool(AveragesWindows):
    """TFLite's AveragePool (reference/pooling.h and integer_ops/pooling.h): the integer mean of the stored values.

    Halves round away from zero; elements of the padding are not counted. Input and output share one type.
    """

    summary = "(sum + sign * count / 2) / count on stored values, padding not counted"
    facts = Facts(known=False, biases={"int8": 1 << 7, "int16": 1 << 15})  # stored values are not negative

    def evaluate(self, operation: Operation, x: Array) -> Array:
        self._check(operation)
        ones = np.ones((1, *x.shape[1:3], 1), np.int64)
        total = sum(window for window in windows(operation, x.astype(np.int64), 0))
        count = sum(window for window in windows(operation, ones, 0))
        half = np.where(total > 0, count // 2, -(count // 2))
        mean = np.trunc((total + half) / count).astype(np.int64)
        return store(mean, operation.per_tensor("out_type"))

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        self._check(operation)
        return IntegerMean(facts.bias(operation.per_tensor("in_type")))

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
        out_type, storage = operation.per_tensor("out_type"), operation.per_tensor("in_type").dtype
        lowest = padded(operation, builder, x, np.iinfo(storage).min)
        largest = builder.emit_te(reduction(operation, te.max, storage), lowest)
        return pointwise(builder, "maximum", lambda value: clamped(value, out_type), [largest])


class FixedPointMean(AveragesAxes):
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

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        zero_points = count * facts.zero_point(operation.per_tensor("in_type"))
        rounding = rounded_twice(self.multiplier(operation, count))
        return FixedMean(rounding, zero_points, facts.zero_point(operation.per_tensor("out_type")))

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
        scaling = rounded_twice(self._multiplier(operation))
        numbers = [tirx.const(int(array[0]), "int32") for array in scaling.arrays]
        least, most = (tirx.const(bound, "int32") for bound in (0, _LARGEST_BYTE))

        def rescale(total: Scalar) -> Scalar:
            centered = total - tirx.const(count * in_type.zero_point, "int32")
            scaled = scaling.express(TENSORS, centered, numbers)
            byte = tirx.max(tirx.min(scaled + tirx.const(out_type.zero_point, "int32"), most), least)
            return byte.astype("uint8").astype(out_type.dtype)

        return pointwise(builder, "sum", rescale, [total])

    def _multiplier(self, operation: Operation) -> tuple[int, int]:
        return fixed_point.quantize_multiplier(
            operation.per_tensor("in_type").scale / operation.per_tensor("out_type").scale
        )


class FloatMean(AveragesAxes):
    """ATen: the sum of the stored values times a float32 factor, plus a float32 bias, rounded to the nearest even."""

    summary = "round_even(float(sum) * (float(s_in / s) * float(1 / count)) + (z - z_in * float(s_in / s)))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        axes, keepdims = mean_axes(operation)
        factor, bias = self.parameters(operation, math.prod(x.shape[axis] for axis in axes))
        total = x.astype(np.int64).sum(axis=axes, keepdims=keepdims)
        mean = total.astype(np.float32) * factor + bias
        return store(round_even(mean).astype(np.int64), operation.per_tensor("out_type"))

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        factor, addend = (float(each) for each in self.parameters(operation, count))
        limited = not 256 * count * abs(factor) + abs(addend) < LARGEST
        return RoundedMean(factor, addend, facts.bias(operation.per_tensor("in_type")), limited)

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


class AwaySum:
    """LiteRT's optimized kernel on 16-bit values (optimized/reduce.h, QuantizedMeanOrSum): the int32 sum times a
    float32 ratio, rounded halves away from zero.
    """

    summary = "round_away(float(sum) * float(s_in / s))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        axes, keepdims = mean_axes(operation)
        total = x.astype(np.int64).sum(axis=axes, keepdims=keepdims).astype(np.int32)
        rounded = round_away(total.astype(np.float32) * self._ratio(operation))
        return store(rounded.astype(np.int64), operation.per_tensor("out_type"))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        total, _ = sum_over_axes(operation, builder, x)
        out_type, ratio = operation.per_tensor("out_type"), tirx.const(float(self._ratio(operation)), "float32")
        low, high = (tirx.const(float(bound), "float32") for bound in (out_type.min, out_type.max))

        def rescale(total: Scalar) -> Scalar:
            rounded = tensors.rounded_away(total.astype("float32") * ratio)
            return tirx.max(tirx.min(rounded, high), low).astype(out_type.dtype)

        return pointwise(builder, "sum", rescale, [total])

    def _ratio(self, operation: Operation) -> np.float32:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        return np.float32(np.float32(in_type.scale) / np.float32(out_type.scale))


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
