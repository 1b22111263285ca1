"""Convolutions: QLinearConv, Conv of real values, and transposed convolutions of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import CHANNELS, filters_channels_last, in_channels_last
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.onnx.operators.windows import Windows
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import accumulator_type
from service.core.models.arrays import Array


def qlinear_conv(node: Node) -> relax.Var:
    """Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, and an int32 bias.

    Images are `[N, C, H, W]`, or rows `[N, C, L]`. Filters are `[O, C / groups, KH, KW]`, with one scale for all or one
    for each.
    """
    windows, weights = Windows(node, weights=3), node.shape(3)
    windows.check_groups(weights)
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=0)
    out_type = node.output_type(6, 7, in_type.storage)
    weight = stored_filters(node, windows, 3)
    bias = bias_of(node, 8, weights[0])

    def body(x: relax.Var) -> relax.Expr:
        accumulated = node.emit(ops.conv2d(x, weight, bias, in_type, weight_type, **windows.options()), "accumulate")
        return ops.requantize(accumulated, accumulator_type(in_type, weight_type, axis=CHANNELS), out_type)

    return node.typed(windows.apply(body), out_type)


def conv(node: Node) -> relax.Var:
    """Inputs: X, W, B of float32. X and W are rounded to bfloat16 if the operator requires it."""
    float32(node, *range(node.input_count))
    windows, weights = Windows(node, weights=1), node.shape(1)
    windows.check_groups(weights)
    weight = _arranged(node, windows, 1)
    bias = node.expr(2) if node.has(2) else None

    def body(x: relax.Var) -> relax.Expr:
        return ops.real_conv2d(x, weight, bias, **windows.options(), operand_dtype=node.operand_dtype)

    return windows.apply(body)


def stored_filters(node: Node, windows: Windows, index: int) -> relax.Expr:
    """Returns filters of stored values as `[O, KH, KW, C / groups]`."""
    if node.constant_data(index) is None:
        return _arranged(node, windows, index)
    return node.constant(index, filters_of_rows if len(node.shape(index)) == 3 else filters_channels_last)


def _arranged(node: Node, windows: Windows, index: int) -> relax.Expr:
    """Returns filters as `[O, KH, KW, C / groups]`. The filters may be computed from constants."""
    filters, per_group = node.shape(index)[:2]
    whole = node.emit(relax.op.reshape(node.expr(index), (filters, per_group, *windows.kernel)), "filters")
    return node.emit(relax.op.permute_dims(whole, (0, 2, 3, 1)), "filters")


def qlinear_conv_transpose(node: Node) -> relax.Var:
    """Inputs: as for `qlinear_conv`, with filters `[C, O, KH, KW]`."""
    if node.attribute("group", 1) != 1:
        node.unsupported("is a transposed convolution in groups, which cannot be compiled")
    windows = Windows(node, weights=3, transposed=True)
    channels, filters = node.shape(3)[:2]
    node.require_supported(channels == windows.channels, f"has {windows.channels} channels, but weights for {channels}")
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=1)
    if weight_type.axis is not None:
        weight_type = replace(weight_type, axis=0)
    out_type, bias = node.output_type(6, 7, in_type.storage), bias_of(node, 8, filters)
    weight = node.constant(3, _transposed_rows if len(node.shape(3)) == 3 else _transposed_filters)

    def body(x: relax.Var) -> relax.Expr:
        call = ops.conv2d_transpose(
            x,
            weight,
            bias,
            in_type,
            weight_type,
            strides=windows.strides,
            padding=windows.padding,
            output_padding=windows.output_padding,
        )
        return ops.requantize(node.emit(call, "accumulate"), accumulator_type(in_type, weight_type, CHANNELS), out_type)

    return node.typed(windows.apply(body), out_type)


def conv_transpose(node: Node) -> relax.Var:
    """Inputs: X, W, B of float32. Inserts zeros between the elements of the input, and convolves it with the flipped
    filters.
    """
    float32(node, *range(node.input_count))
    windows, (channels, per_group) = Windows(node, weights=1, transposed=True), node.shape(1)[:2]
    groups = windows.groups
    fits = groups > 0 and channels == windows.channels and channels % groups == 0
    node.require_supported(fits, f"has {windows.channels} channels, but weights for {channels} in {groups} groups")
    x = _spread(node, windows)
    weight = _flipped_filters(node, windows, per_group)
    sides = [
        windows.dilation[axis % 2] * (windows.kernel[axis % 2] - 1) - side for axis, side in enumerate(windows.padding)
    ]
    if min(sides) < 0:  # the result does not depend on the first or last elements
        ends = [size + min(0, side) for size, side in zip(shape_of(x)[2:], sides[2:], strict=True)]
        starts = [max(0, -side) for side in sides[:2]]
        fits = all(start < end for start, end in zip(starts, ends, strict=True))
        node.require_supported(fits, "removes all elements of its result")
        x = node.emit(relax.op.strided_slice(x, [2, 3], starts, ends), "cropped")
    padding = [max(0, side) for side in sides]
    bias = node.expr(2) if node.has(2) else None

    def body(image: relax.Var) -> relax.Expr:
        return ops.real_conv2d(image, weight, bias, padding=padding, dilation=windows.dilation, groups=groups)

    return windows.restored(in_channels_last(node.emit, x, body))


def _spread(node: Node, windows: Windows) -> relax.Expr:
    """Returns the image with `stride - 1` zeros inserted between its elements, and `output_padding` zeros after
    them.
    """
    (height, width), (down, right) = windows.size, windows.strides
    n, channels = node.shape(0)[:2]
    cells = node.emit(relax.op.reshape(windows.image(node.expr(0)), (n, channels, height, 1, width, 1)), "cells")
    apart = node.emit(relax.op.nn.pad(cells, [0, 0, 0, 0, 0, 0, 0, down - 1, 0, 0, 0, right - 1]), "apart")
    whole = node.emit(relax.op.reshape(apart, (n, channels, height * down, width * right)), "whole")
    ends = [(height - 1) * down + 1, (width - 1) * right + 1]
    inside = node.emit(relax.op.strided_slice(whole, [2, 3], [0, 0], ends, [1, 1]), "inside")
    below, beside = windows.output_padding
    return node.emit(relax.op.nn.pad(inside, [0, 0, 0, 0, 0, below, 0, beside]), "spread")


def _flipped_filters(node: Node, windows: Windows, per_group: int) -> relax.Expr:
    """Converts constant filters `[C, O / groups, KH, KW]` to those of the ordinary convolution, which are flipped: `[O,
    KH, KW, C / groups]`.
    """
    groups, each = windows.groups, windows.channels // windows.groups
    (rows, columns), data, value = windows.kernel, node.data(1), node.value(1)
    shape = (groups, each, per_group, rows, columns)
    if isinstance(value, np.ndarray):
        whole = data.reshape(shape)[..., ::-1, ::-1]
        return node.literal(whole.transpose(0, 2, 3, 4, 1).reshape(groups * per_group, rows, columns, each))
    parts = node.emit(relax.op.reshape(value, shape), "filters")
    for axis in (3, 4):
        parts = node.emit(relax.op.flip(parts, axis), "filters")
    turned = node.emit(relax.op.permute_dims(parts, (0, 2, 3, 4, 1)), "filters")
    return node.emit(relax.op.reshape(turned, (groups * per_group, rows, columns, each)), "filters")


def bias_of(node: Node, index: int, filters: int) -> relax.Constant | None:
    """Returns a bias with one int32 for each filter. The bias is assumed to have the accumulators' scale, as in ONNX
    Runtime.
    """
    if not node.has(index):
        return None
    bias = node.data(index)
    node.require(bias.dtype == np.int32, f"has a bias of {bias.dtype}, not int32", node.name(index))
    node.require(bias.size == filters, f"has a bias {list(bias.shape)} for {filters} filters", node.name(index))
    return node.constant(index, flat)


def flat(values: Array) -> Array:
    return values.reshape(-1)


def _transposed_filters(weights: Array) -> Array:
    """Converts `[C, O, KH, KW]` to `[O, KH, KW, C]`."""
    return np.ascontiguousarray(weights.transpose(1, 2, 3, 0))


def _transposed_rows(weights: Array) -> Array:
    """Converts `[C, O, K]` to `[O, 1, K, C]`."""
    return _transposed_filters(weights[:, :, np.newaxis])


def filters_of_rows(weights: Array) -> Array:
    """Converts `[O, C / groups, K]` to `[O, 1, K, C / groups]`."""
    return filters_channels_last(weights[:, :, np.newaxis])
