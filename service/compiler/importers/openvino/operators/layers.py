"""Convolutions and products of matrices: in integers if both operands are stored, and otherwise of real values."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import pooling
from service.compiler.importers.channels_first import CHANNELS, filters_channels_last, in_channels_last
from service.compiler.importers.openvino.node import Node
from service.compiler.importers.openvino.operators.quantizing import dequantized_sums
from service.compiler.importers.openvino.values import Compressed, Stored, Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Pairs = tuple[tuple[int, ...], tuple[int, ...]]
_LISTS = ("output_padding", "pads_begin", "pads_end")
_UNITS = 1  # the axis of a dense layer's output that counts units


def convolution(node: Node) -> list[Value]:
    """`Convolution`: weights `[O, C, …]`."""
    node.count(2)
    return [_convolved(node, node.value(1), groups=1)]


def group_convolution(node: Node) -> list[Value]:
    """`GroupConvolution`: weights `[G, O / G, C / G, …]`."""
    node.count(2)
    weights = node.value(1)
    shape = node.extents(weights)
    node.require(len(shape) >= 4, f"has weights of shape {list(shape)}, not [G, O, I, …]")
    merged = (shape[0] * shape[1], *shape[2:])
    return [_convolved(node, _merged_groups(node, weights, merged), groups=shape[0])]


def _merged_groups(node: Node, weights: Value, shape: tuple[int, ...]) -> Value:
    """Returns weights whose first two axes are one."""
    if isinstance(weights, Compressed) and weights.data.shape == weights.shape:
        rank = weights.data.ndim
        rows = [_rows(part, weights.data.shape, rank) for part in (weights.scale, weights.zero_point)]
        if all(row is not None for row in rows):
            scale, zero = rows
            zero = None if weights.zero_point is None else zero
            return Compressed(weights.data.reshape(shape), shape, scale, zero)
    real = node.real(1)
    if isinstance(real, np.ndarray):
        return real.reshape(shape)
    return node.step("Reshape", real, np.array(shape, np.int64))


def _rows(part: Array | None, shape: tuple[int, ...], rank: int) -> Array | None:
    """Returns scales of `[G, O / G, …]` for each of the merged rows; None if they differ along other axes."""
    if part is None:
        return np.ones((), np.float32)
    padded = part.reshape((1,) * (rank - part.ndim) + part.shape)
    if padded.size == 1:
        return padded.reshape(())
    if any(size != 1 for size in padded.shape[2:]):
        return None
    return np.broadcast_to(padded.reshape(padded.shape[:2]), shape[:2]).reshape(-1, *[1] * (rank - 2))


def _convolved(node: Node, weights: Value, groups: int) -> Value:
    x, shape = node.value(0), node.extents(weights)
    spatial = len(shape) - 2
    size = node.shape(0)
    node.require(len(size) == len(shape), f"has an input {list(size)}, which does not fit weights {list(shape)}")
    strides = _per_axis(node, "strides", spatial, 1)
    dilations = _per_axis(node, "dilations", spatial, 1)
    reach = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(shape[2:], dilations, strict=True)]
    begin, end = padding(node, size[2:], reach, strides)
    scales = weights.row_scales(0) if isinstance(weights, Compressed) else None
    fits = spatial <= 2 and size[1] == shape[1] * groups
    if isinstance(x, Stored) and scales is not None and weights.data.dtype == np.int8 and fits:
        return _integer_convolution(node, x, weights, scales, (strides, dilations, begin, end), groups)
    options: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": (*begin, *end), "group": groups}
    return node.step("Conv", node.real(0), node.as_real(weights), **options)


def _integer_convolution(
    node: Node, x: Stored, weights: Compressed, scales: Array, window: tuple[Any, ...], groups: int
) -> relax.Expr:
    strides, dilations, begin, end = window
    if len(strides) == 1:
        strides, dilations, begin, end = (1, *strides), (1, *dilations), (0, *begin), (0, *end)
    shape, data = shape_of(x.expr), weights.data
    image = x.expr
    if len(shape) == 3:  # rows [N, C, L] are images of one row
        image = node.emit(relax.op.reshape(image, (*shape[:2], 1, shape[2])), "image")
        data = data[:, :, np.newaxis]
    sides = (begin[0], begin[1], end[0], end[1])
    height, width = shape_of(image)[2:]
    pooling.check_padded(node, shape[0] * shape[1], (height, width), sides)
    filters = relax.const(filters_channels_last(data), "int8")
    weight_type = QuantizedType(
        "int8", tuple(map(float, scales)), (0,) * len(scales), axis=0 if len(scales) > 1 else None
    )
    options: dict[str, Any] = {"strides": strides, "padding": sides, "dilation": dilations, "groups": groups}
    sums_scales = product_scales(x.type, scales)

    def body(image: relax.Var) -> relax.Expr:
        sums = ops.conv2d(image, filters, None, x.type, weight_type, **options)
        return dequantized_sums(node, sums, sums_scales, CHANNELS)

    made = in_channels_last(node.emit, image, body)
    if len(shape) == 4:
        return made
    n, channels, _, width = shape_of(made)
    return node.emit(relax.op.reshape(made, (n, channels, width)), "rows")


def product_scales(x: QuantizedType, scales: Array) -> Array:
    """Returns the scales of sums of products: the float32 product of the float32 scales, as OpenVINO's transformations
    compute it.
    """
    return np.asarray(np.float32(x.scale) * scales.astype(np.float32))


def _per_axis(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = node.attributes.integers(name, (default,) * rank)
    node.require(len(values) == rank and min(values, default=1) >= 1, f"has the {name} {list(values)[:8]}")
    return values


def padding(node: Node, size: Any, reach: Any, strides: Any) -> Pairs:
    """Returns the padding before and after each axis."""
    rank, auto = len(reach), node.attributes.text("auto_pad", "explicit").lower()
    if auto in ("explicit", "notset"):
        begin, end = (node.attributes.integers(name, (0,) * rank) for name in ("pads_begin", "pads_end"))
        node.require(len(begin) == len(end) == rank, f"has pads for {len(begin)} and {len(end)} axes, not {rank}")
        node.require_supported(min((*begin, *end)) >= 0, "has negative pads, which cannot be compiled")
        return begin, end
    if auto == "valid":
        return (0,) * rank, (0,) * rank
    node.require(auto in ("same_upper", "same_lower"), f"has the unknown auto_pad {auto[:20]!a}")
    totals = [
        max(0, (-(-extent // stride) - 1) * stride + each - extent)
        for extent, each, stride in zip(size, reach, strides, strict=True)
    ]
    less, more = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (less, more) if auto == "same_upper" else (more, less)


def deconvolution(node: Node) -> list[Value]:
    """`ConvolutionBackpropData`: weights `[C, O, …]`; an optional third input gives the size of the result."""
    return [_deconvolved(node, node.real(1), 1)]


def group_deconvolution(node: Node) -> list[Value]:
    """`GroupConvolutionBackpropData`: weights `[G, C / G, O / G, …]`."""
    weights = node.real(1)
    shape = node.extents(weights)
    node.require(len(shape) >= 4, f"has weights of shape {list(shape)}, not [G, C, O, …]")
    merged = np.array((shape[0] * shape[1], *shape[2:]), np.int64)
    return [_deconvolved(node, node.step("Reshape", weights, merged), shape[0])]


def _deconvolved(node: Node, weights: Value, groups: int) -> Value:
    node.count(2, 3)
    size, kernel = node.shape(0)[2:], node.extents(weights)[2:]
    rank = len(kernel)
    node.require(rank == len(size) >= 1, f"has an input {list(node.shape(0))}, which does not fit its weights")
    strides, dilations = _per_axis(node, "strides", rank, 1), _per_axis(node, "dilations", rank, 1)
    lengths = [len(node.attributes.integers(name, (0,) * rank)) for name in _LISTS]
    lengths += [len(node.integers(2))] if node.input_count == 3 else []
    node.require(set(lengths) == {rank}, f"has lists of {lengths} numbers for {rank} axes")
    extra = node.attributes.integers("output_padding", (0,) * rank)
    reach = [(each - 1) * dilation + 1 for each, dilation in zip(kernel, dilations, strict=True)]
    full = [(each - 1) * stride + window for each, stride, window in zip(size, strides, reach, strict=True)]
    auto = node.attributes.text("auto_pad", "explicit").lower()
    if node.input_count == 3 and auto != "explicit":
        totals = [a + b - c for a, b, c in zip(full, extra, node.integers(2), strict=True)]
        halves = [max(total, 0) // 2 for total in totals]
        rests = [max(total, 0) - each for each, total in zip(halves, totals, strict=True)]
        begin, end = (halves, rests) if auto == "same_upper" else (rests, halves)
        extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals, strict=True))
    else:
        begin, end = (list(node.attributes.integers(name, (0,) * rank)) for name in ("pads_begin", "pads_end"))
        if node.input_count == 3:
            wanted = node.integers(2)
            extra = tuple(w - (f - b - e) for w, f, b, e in zip(wanted, full, begin, end, strict=True))
    options: dict[str, Any] = {
        "strides": strides, "dilations": dilations, "pads": (*begin, *end), "group": groups, "output_padding": extra,
    }  # fmt: skip
    return node.step("ConvTranspose", node.real(0), weights, **options)


def matmul(node: Node) -> list[Value]:
    """`MatMul`: matrices in the last two axes, each transposed if its attribute is set."""
    node.count(2)
    turns = [node.attributes.flag(name) for name in ("transpose_a", "transpose_b")]
    x, w = node.value(0), node.value(1)
    if isinstance(x, Stored) and not turns[0]:
        made = _integer_dense(node, x, w, transposed=turns[1])
        if made is None and isinstance(w, Stored):
            made = _integer_product(node, x, w, transposed=turns[1])
        if made is not None:
            return [made]
    operands = [_transpose_matrix(node, node.real(index), turn) for index, turn in enumerate(turns)]
    return node.standard("MatMul", *operands)


def _integer_dense(node: Node, x: Stored, w: Value, *, transposed: bool) -> Value | None:
    """Returns the product of stored rows by constant int8 weights, or None if the weights do not have that form."""
    if not isinstance(w, Compressed) or w.data.ndim != 2 or w.data.dtype != np.int8:
        return None
    scales = w.row_scales(0 if transposed else 1)
    shape = shape_of(x.expr)
    weights = w.data if transposed else np.ascontiguousarray(w.data.T)
    if scales is None or not shape or shape[-1] != weights.shape[1]:
        return None
    rows = x.expr
    if len(shape) != 2:
        rows = node.emit(relax.op.reshape(rows, (math.prod(shape[:-1]), shape[-1])), "rows")
    axis = 0 if len(scales) > 1 else None
    weight_type = QuantizedType("int8", tuple(map(float, scales)), (0,) * len(scales), axis=axis)
    sums = ops.dense(rows, relax.const(weights, "int8"), None, x.type, weight_type)
    made = node.emit(dequantized_sums(node, sums, product_scales(x.type, scales), _UNITS))
    return made if len(shape) == 2 else node.emit(relax.op.reshape(made, (*shape[:-1], weights.shape[0])), "shaped")


def _integer_product(node: Node, x: Stored, w: Stored, *, transposed: bool) -> Value | None:
    """Returns the product of two computed matrices of stored values."""
    if len(shape_of(x.expr)) < 2 or len(shape_of(w.expr)) < 2:
        return None
    other = w.expr
    if transposed:
        order = list(range(len(shape_of(other))))
        order[-2:] = order[:-3:-1]
        other = node.emit(relax.op.permute_dims(other, order), "turned")
    sums = ops.matmul(x.expr, other, replace(x.type), replace(w.type))
    scale = np.array([np.float32(x.type.scale) * np.float32(w.type.scale)], np.float32)
    return node.emit(dequantized_sums(node, sums, scale, _UNITS))


def _transpose_matrix(node: Node, x: Value, turn: bool) -> Value:
    rank = len(node.extents(x))
    if not turn or rank < 2:
        return x
    order = list(range(rank))
    order[-2:] = order[:-3:-1]
    return node.step("Transpose", x, perm=tuple(order))
