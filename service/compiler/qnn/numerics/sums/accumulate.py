"""Sums of products: the same integers in every mode, since integer addition is associative.

The canonical form is the four-term expansion of Jain et al. 2020, section 4.2. With x, w the stored values:

    sum((x - zx) * (w - zw)) = sum(x * w) - zw * sum(x) - zx * sum(w) + count * zx * zw

Terms 3 and 4 are constants and are folded into the bias. Term 2 is zero if zw is zero. Padding consists of zero points,
so that every window is complete and `count` is the same for all windows. If the weights are computed while the model
runs, the zero points are subtracted from both operands instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax, te

from service.compiler.qnn import ops
from service.compiler.qnn.numerics.formula import ChannelConstant, Scalar, pointwise
from service.compiler.qnn.numerics.sums.exact import Filters, bands, sliding
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array

Compute = Callable[..., te.Tensor]

# dtype of stored integers -> dtype that holds them less their zero point
_WIDE = {"int8": "int16", "uint8": "int16", "int16": "int32", "uint16": "int32"}
_NARROW = {"int8", "uint8", "int16"}  # dtypes whose products fit 32 bits
_SHORTEST_PART = 32  # input channels: shorter parts would cost more than 64-bit sums


class Conv2d:
    """The formula of `qnn.conv2d`."""

    summary = "sum((x - zx) * (w - zw)) + bias, exact"

    def evaluate(self, operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Multiplies windows by filters as matrices: `[N, H, W, C]` and `[O, KH, KW, I]` -> `[N, OH, OW, O]`."""
        out_channels, kernel_h, kernel_w, per_group = weight.shape
        groups = operation.integer("groups")
        filters = _filters(operation, weight, groups)
        n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
        windows = sliding(
            _padded_reals(operation, x, filters.dtype),
            (height, width),
            (kernel_h, kernel_w),
            operation.ints("strides", 2, 1),
            operation.ints("dilation", 2, 1),
        )
        total = np.empty((n, height, width, out_channels), str(operation.attr("accum_dtype")))
        for rows in bands(windows):
            band = windows[:, rows].reshape(-1, kernel_h * kernel_w, groups, per_group)
            by_group = band.transpose(2, 0, 1, 3).reshape(groups, len(band), -1)
            products = filters.products(by_group).transpose(1, 0, 2)
            total[:, rows] = accumulated(operation, products.reshape(n, -1, width, out_channels), bias)
        return total

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        operation, x, weight = _centered_if_needed(operation, builder, x, weight)
        top, left, bottom, right = operation.ints("padding", 4, 0)
        if top or left or bottom or right:
            pad_width = [0, 0, top, bottom, left, right, 0, 0]
            x = builder.emit(relax.op.nn.pad(x, pad_width, pad_value=operation.per_tensor("in_type").zero_point))
        stored = value_of(weight)
        products, windows = _convolution(operation, _shape_of(weight), *_parts(operation, stored))
        order = (1, 2, 3, 0)  # HWIO: neighbours are filters
        if stored is None:
            kernel = builder.emit(relax.op.permute_dims(weight, order))
            return _sums(operation, builder, builder.emit_te(products, x, kernel), bias)
        kernel = relax.const(np.ascontiguousarray(stored.transpose(order)))
        return _expanded(operation, builder, x, stored, bias, kernel, products, windows)


class Dense:
    """The formula of `qnn.dense`."""

    summary = Conv2d.summary

    def evaluate(self, operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
        filters = _filters(operation, weight, groups=1)
        reals = centered(x, operation.per_tensor("in_type"), filters.dtype)
        return accumulated(operation, filters.products(reals[None])[0], bias)

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        operation, x, weight = _centered_if_needed(operation, builder, x, weight)
        stored = value_of(weight)
        products, windows = _matrix_product(operation, _shape_of(weight), *_parts(operation, stored))
        if stored is None:
            kernel = builder.emit(relax.op.permute_dims(weight, (1, 0)))
            return _sums(operation, builder, builder.emit_te(products, x, kernel), bias)
        kernel = relax.const(np.ascontiguousarray(stored.T))
        return _expanded(operation, builder, x, stored, bias, kernel, products, windows)


def _centered_if_needed(
    operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, weight: relax.Expr
) -> tuple[Operation, relax.Expr, relax.Expr]:
    """For a simulated operation, or one with computed weights, subtracts the zero points from the operands if they are
    not 0. Other operations are unchanged.

    A simulated operation has stored integers as float32. The four terms of the expansion would need more bits than the
    sum of products.
    """
    points = (*operation.per_tensor("in_type").zero_points, *operation.quantized("weight_type").zero_points)
    if not operation.is_simulated and (value_of(weight) is not None or not any(points)):
        return operation, x, weight
    return centered_operands(operation, builder, x, weight)


def centered_operands(
    operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, weight: relax.Expr
) -> tuple[Operation, relax.Expr, relax.Expr]:
    """Subtracts the zero points from the operands; returns the operation on them."""
    types = {"in_type": operation.per_tensor("in_type"), "weight_type": operation.quantized("weight_type")}
    x, weight = (_center(builder, operand, each) for operand, each in zip((x, weight), types.values(), strict=True))
    types = {
        name: replace(each, zero_points=(0,))
        if operation.is_simulated
        else QuantizedType(_WIDE[each.dtype], each.scales, axis=each.axis)
        for name, each in types.items()
    }
    call = ops.with_operands(operation.call, x, weight, *operation.call.args[2:], **types)
    return Operation(builder.normalize(call), operation.producer), x, weight


def _center(builder: relax.BlockBuilder, x: relax.Expr, quantized: QuantizedType) -> relax.Expr:
    """Subtracts the zero points from stored integers. The result is float32 for float32, and otherwise the next larger
    integer type.
    """
    stored, dtype = value_of(x), str(x.ty.dtype)
    wide = _WIDE.get(dtype, dtype)
    if stored is not None:
        return relax.const(centered(stored, quantized).astype(wide))
    points = ChannelConstant(np.array(quantized.zero_points, wide), quantized.axis)
    # Integers have a function of their own, so that each is converted once, and not once for each of its products.
    alone = dtype != "float32"
    center = pointwise(builder, "center", lambda value, point: value.astype(wide) - point, [x], [points], alone=alone)
    return builder.emit(center)


def _sums(
    operation: Operation, builder: relax.BlockBuilder, products: relax.Expr, bias: relax.Expr | None
) -> relax.Expr:
    """Adds a bias, which may be computed, to sums of products."""
    sums = builder.emit(products)
    return sums if bias is None else pointwise(builder, "bias", lambda total, offset: total + offset, [sums, bias])


def constant(operation: Operation, expr: relax.Expr) -> Array:
    """Returns the value of a weight or bias.

    Raises:
        UnsupportedOperator: the weight or bias is computed while the model runs.
    """
    value = value_of(expr)
    if value is None:
        raise UnsupportedOperator(
            f"{operation.name} has weights that are not constant", op=operation.name, hint="freeze the model first"
        )
    return value


def centered(values: Array, quantized: QuantizedType, dtype: Any = np.float64) -> Array:
    """Returns stored values less their zero points: exact up to 2**53 in float64, and up to 2**24 in float32."""
    points = np.array(quantized.zero_points, dtype)
    if quantized.axis is not None:
        points = points.reshape([-1 if axis == quantized.axis else 1 for axis in range(values.ndim)])
    return np.asarray(values.astype(dtype) - points)


def _filters(operation: Operation, weight: Array, groups: int) -> Filters:
    """Returns the filters of the weights. Constant weights are prepared once, for the first sample."""

    def make() -> Filters:
        in_type = operation.per_tensor("in_type")
        low, high = STORAGE_RANGES[in_type.dtype]
        largest = max(high - in_type.zero_point, in_type.zero_point - low)
        reals = centered(weight, operation.quantized("weight_type"))
        return Filters(reals.reshape(groups, len(weight) // groups, -1), largest)

    is_constant = value_of(operation.call.args[1]) is not None
    return operation.once("filters", make) if is_constant else make()


def _padded_reals(operation: Operation, x: Array, dtype: Any) -> Array:
    top, left, bottom, right = operation.ints("padding", 4, 0)
    reals = centered(x, operation.per_tensor("in_type"), dtype)
    return np.pad(reals, ((0, 0), (top, bottom), (left, right), (0, 0)))


def accumulated(operation: Operation, sums: Array, bias: Array | None) -> Array:
    if bias is not None:
        sums = sums + bias.astype(np.float64)
    accum_dtype = str(operation.attr("accum_dtype"))
    # Conversion through int64 makes accumulators wrap like those of the reference kernels.
    return sums.astype(np.float32) if accum_dtype == "float32" else sums.astype(np.int64).astype(accum_dtype)


def _expanded(
    operation: Operation,
    builder: relax.BlockBuilder,
    x: relax.Expr,
    stored: Array,
    bias: relax.Expr | None,
    kernel: relax.Constant,
    products: Compute,
    windows: Compute,
) -> relax.Expr:
    """Emits the four terms. `products(x, kernel)` computes the first term; it may have an additional first axis of
    partial sums (`_parts`). `windows(x)` computes the sums of the second term, one for each group.
    """
    accum_dtype = str(operation.attr("accum_dtype"))
    sums = builder.emit_te(products, x, kernel, primfunc_name_hint=operation.name.replace(".", "_"))
    if len(sums.ty.shape) > len(operation.call.ty.shape):
        sums = builder.emit_te(_added_up, sums, accum_dtype, primfunc_name_hint="parts")
    offset = ChannelConstant(_terms_3_and_4(operation, stored, bias), axis=len(sums.ty.shape) - 1)
    points = np.array(operation.quantized("weight_type").zero_points, accum_dtype)
    if not points.any():
        return pointwise(builder, "bias", lambda total, offset: total.astype(accum_dtype) + offset, [sums], [offset])
    # All filters of a group share one window sum: repeat it so that the subtraction is elementwise.
    repeated = builder.emit_te(windows, x, primfunc_name_hint="window_sum")
    zero_point = ChannelConstant(points, None if len(points) == 1 else len(sums.ty.shape) - 1)
    return pointwise(
        builder,
        "bias",
        lambda total, window, offset, zero_point: total - zero_point * window + offset,
        [sums, repeated],
        [offset, zero_point],
    )


def _terms_3_and_4(operation: Operation, stored: Array, bias: relax.Expr | None) -> Array:
    """Returns bias - zx * sum(w) + count * zx * zw, for each filter."""
    in_type, weight_type = operation.per_tensor("in_type"), operation.quantized("weight_type")
    filters = stored.reshape(len(stored), -1).astype(np.int64)
    offset = in_type.zero_point * (filters.shape[1] * np.array(weight_type.zero_points, np.int64) - filters.sum(axis=1))
    if bias is not None:
        offset = offset + constant(operation, bias).astype(np.int64)
    return np.asarray(offset.astype(str(operation.attr("accum_dtype"))))


def _shape_of(weight: relax.Expr) -> tuple[int, ...]:
    return tuple(int(dim) for dim in weight.ty.shape)


def _parts(operation: Operation, stored: Array | None) -> tuple[int, str]:
    """Returns the number of parts into which the input channels of a sum are divided, and the dtype of the parts' sums.

    Args:
        stored: the weights; None if they are computed.

    Processors add and multiply 32-bit integers faster than 64-bit ones. If the weights guarantee that a 64-bit sum fits
    32 bits for every input, it is computed as one 32-bit sum. Otherwise it is computed as several 32-bit sums, which
    are then added.
    """
    accum_dtype, (low, high) = (
        str(operation.attr("accum_dtype")),
        STORAGE_RANGES[operation.per_tensor("in_type").dtype],
    )
    if stored is None or accum_dtype != "int64" or any(operation.quantized("weight_type").zero_points):
        return 1, accum_dtype
    channels = stored.shape[-1]
    magnitudes = np.abs(stored.astype(np.int64)).reshape(len(stored), -1, channels).sum(axis=1) * max(-low, high)
    for parts in range(1, channels // _SHORTEST_PART + 1 if channels > _SHORTEST_PART else 2):
        if channels % parts == 0 and magnitudes.reshape(len(stored), parts, -1).sum(axis=2).max() < 1 << 31:
            return parts, "int32"
    return 1, "int64"


def _added_up(parts: te.Tensor, dtype: str) -> te.Tensor:
    part = te.reduce_axis((0, parts.shape[0]), "part")
    return te.compute(
        parts.shape[1:], lambda *index: te.sum(parts(part, *index).astype(dtype), axis=part), name="total"
    )


def _product(element: Scalar, weight: Scalar, dtype: str) -> Scalar:
    """Returns a term of a sum of `dtype`."""
    narrow = "int32" if dtype == "int64" and {str(element.dtype), str(weight.dtype)} <= _NARROW else dtype
    return (element.astype(narrow) * weight.astype(narrow)).astype(dtype)


def _convolution(operation: Operation, weights: tuple[int, ...], parts: int, dtype: str) -> tuple[Compute, Compute]:
    out_channels, kernel_h, kernel_w, per_group = weights
    filters_per_group = out_channels // operation.integer("groups")
    (stride_h, stride_w), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    run, shape = per_group // parts, [int(dim) for dim in operation.call.ty.shape]

    def reduce_over(term: Callable[..., Scalar], out_shape: Sequence[int], name: str) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), axis) for extent, axis in ((kernel_h, "kh"), (kernel_w, "kw"), (run, "ic"))]
        return te.compute(out_shape, lambda *index: te.sum(term(*index, *axes), axis=axes), name=name)

    def products(x: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        def term(*index: Any) -> Scalar:
            *part, n, h, w, o, i, j, c = index
            within = part[0] * run + c if part else c
            channel = o // filters_per_group * per_group + within
            element = x[n, h * stride_h + i * step_h, w * stride_w + j * step_w, channel]
            return _product(element, kernel[i, j, within, o], dtype)

        return reduce_over(term, [parts, *shape] if parts > 1 else shape, "products")

    def windows(x: te.Tensor) -> te.Tensor:
        def term(n: Any, h: Any, w: Any, group: Any, i: Any, j: Any, c: Any) -> Scalar:
            return x[n, h * stride_h + i * step_h, w * stride_w + j * step_w, group * per_group + c].astype(dtype)

        sums = reduce_over(term, [*shape[:3], out_channels // filters_per_group], "windows")
        return te.compute(shape, lambda n, h, w, o: sums[n, h, w, o // filters_per_group], name="repeated")

    return products, windows


def _matrix_product(operation: Operation, weights: tuple[int, ...], parts: int, dtype: str) -> tuple[Compute, Compute]:
    out_channels, depth = weights
    run, rows = depth // parts, int(operation.call.ty.shape[0])

    def products(x: te.Tensor, kernel: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, run), "k")

        def total(*index: Any) -> Scalar:
            *part, n, o = index
            within = part[0] * run + k if part else k
            return te.sum(_product(x[n, within], kernel[within, o], dtype), axis=k)

        shape = (rows, out_channels)
        return te.compute((parts, *shape) if parts > 1 else shape, total, name="products")

    def windows(x: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")
        sums = te.compute((rows,), lambda n: te.sum(x[n, k].astype(dtype), axis=k), name="windows")
        return te.compute((rows, out_channels), lambda n, o: sums[n], name="repeated")

    return products, windows
