"""Convolutions of images `[N, H, W, C]`: in integers if the operands are stored, and otherwise of real values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import pooling
from service.compiler.importers.builder.dynamic import STORED, Ranges
from service.compiler.importers.channels_first import TO_CHANNELS_FIRST, TO_CHANNELS_LAST
from service.compiler.importers.executorch.node import Node
from service.compiler.importers.executorch.values import Dynamic, Stored, Value
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.dynamic import CONV2D, ZERO_POINT
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.core.models.arrays import Array

_UNITS = 3  # the axis of channels


def _convolution(*, depthwise: bool) -> Callable[[Node], Value]:
    """Returns the rule of Conv2d, whose weights are `[O, KH, KW, C / groups]`, or of DepthwiseConv2d, whose weights are
    `[1, KH, KW, O]`.
    """

    def convert(node: Node) -> Value:
        node.check_flags()
        x, filter_ = node.value("input1_id"), node.tensor("filter_id")
        shape = node.extents(x)
        node.require(
            len(shape) == 4 == len(filter_.shape),
            f"has an image of shape {list(shape)} and weights of shape {list(filter_.shape)}",
        )
        groups = node.integer("groups", 1)
        options: dict[str, Any] = {
            "strides": node.pair("subsampling", 1),
            "padding": node.sides(),
            "dilation": node.pair("dilation", 1),
            "groups": groups,
        }
        pooling.check_padded(node, shape[0] * shape[3], (shape[1], shape[2]), options["padding"])
        if not isinstance(x, Stored | Dynamic):
            return _of_reals(node, x, groups, options, depthwise=depthwise)
        data, scales = node.weights("filter_id")
        weights = _filters_first(data) if depthwise else data
        _check_groups(node, shape[3], weights.shape, groups)
        weight_type = node.weight_type(scales, 3 if depthwise else 0, len(weights))
        if isinstance(x, Dynamic):
            node.require_supported(not depthwise, "is a depthwise convolution of dynamically quantized values")
            return _of_dynamic(node, x, weights, weight_type, options)
        call = ops.conv2d(
            x.expr, node.literal(weights), _stored_bias(node, len(weights)), x.type, weight_type, **options
        )
        return _requantized(node, call, x.type, weight_type)

    return convert


def _filters_first(weights: Array) -> Array:
    """Transposes `[1, KH, KW, O]` to `[O, KH, KW, 1]`."""
    return np.ascontiguousarray(np.transpose(weights, (3, 1, 2, 0)))


def _check_groups(node: Node, channels: int, weights: tuple[int, ...], groups: int) -> None:
    fits = channels == weights[3] * groups and weights[0] % groups == 0
    node.require(fits, f"has {channels} channels, and weights of shape {list(weights)} in {groups} groups")


def _stored_bias(node: Node, filters: int) -> relax.Constant | None:
    bias = node.bias("bias_id", filters)
    if bias is None:
        return None
    node.require(bias.dtype == np.int32, f"adds a bias of {bias.dtype} to stored values")
    return node.literal(bias)


def _real_bias(node: Node, filters: int) -> Array | None:
    bias = node.bias("bias_id", filters)
    node.require(bias is None or bias.dtype == np.float32, "adds a bias of integers to real values")
    return bias


def _requantized(node: Node, call: relax.Call, in_type: QuantizedType, weight_type: QuantizedType) -> Stored:
    sums, out_type = node.emit(call, "accumulate"), node.out_type()
    node.require(in_type.storage == out_type.storage, f"reads {in_type.storage}, but writes {out_type.storage}")
    axis = len(shape_of(sums)) - 1
    return Stored(node.emit(ops.requantize(sums, accumulator_type(in_type, weight_type, axis), out_type)), out_type)


def _of_dynamic(
    node: Node, x: Dynamic, weights: Array, weight_type: QuantizedType, options: dict[str, Any]
) -> relax.Expr:
    """Returns a convolution of values that are quantized with one range for each image. XNNPACK computes a convolution
    of single pixels as a dense layer, with one range for each pixel.
    """
    padding = options.pop("padding")
    by_pixel = (*weights.shape[1:3], *options["strides"], options["groups"]) == (1,) * 5 and not any(padding)
    axes = (3,) if by_pixel else (1, 2, 3)
    x.axes.add(axes)
    node.require_supported(
        len(x.axes) == 1,
        "shares dynamically quantized values with a convolution of single pixels, for which ExecuTorch 1.5.1 computes "
        "wrong results",
        hint="export the model without dynamic quantization of one of the two convolutions",
    )
    ranges = Ranges(node, x.expr, axes, CONV2D, symmetric=False)
    stored = ranges.quantized()
    if any(padding):
        stored = node.emit(ops.dynamic_pad(stored, ranges.parameter(ZERO_POINT), padding), "padded")
    call = ops.conv2d(stored, node.literal(weights), None, STORED, STORED, padding=(0,) * 4, **options)
    bias = _real_bias(node, len(weights))
    made = ranges.scaled(node.emit(call, "sums"), weights, weight_type, None if bias is None else node.literal(bias))
    return node.clamped(node.emit(made, "scaled"))


def _of_reals(node: Node, x: Value, groups: int, options: dict[str, Any], *, depthwise: bool) -> relax.Expr:
    filter_ = node.tensor("filter_id")
    if filter_.data is None or filter_.data.dtype != np.float32:
        node.unsupported("has weights that are not a constant of float32")
    order = (3, 0, 1, 2) if depthwise else TO_CHANNELS_FIRST
    weights = np.ascontiguousarray(filter_.data.transpose(order))
    bias = _real_bias(node, len(weights))
    top, left, bottom, right = options["padding"]
    made = node.step(
        "Conv",
        _channels_first(node, x),
        weights,
        bias,
        strides=options["strides"],
        pads=(top, left, bottom, right),
        dilations=options["dilation"],
        group=groups,
    )
    return node.clamped(_channels_last(node, made))


def _channels_first(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.permute_dims(x, TO_CHANNELS_FIRST), "planes")


def _channels_last(node: Node, x: relax.Expr) -> relax.Expr:
    return node.emit(relax.op.permute_dims(x, TO_CHANNELS_LAST), "image")


def _transposed(node: Node) -> Value:
    """`ConvTranspose2d`: weights `[O, KH, KW, C / groups]`, O in groups."""
    node.check_flags()
    x, filter_, groups = node.value("input1_id"), node.tensor("filter_id"), node.integer("groups", 1)
    shape = node.extents(x)
    node.require(len(shape) == 4 == len(filter_.shape), f"has an image of shape {list(shape)}")
    strides, dilation, more = node.pair("subsampling", 1), node.pair("dilation", 1), node.pair("adjustment")
    filters = filter_.shape[0]
    node.require(shape[3] == filter_.shape[3] * groups and filters % groups == 0, f"has {shape[3]} channels")
    if isinstance(x, Stored):
        node.require_supported(groups == 1 and dilation == (1, 1), "has groups or a dilation, in integers")
        data, scales = node.weights("filter_id")
        weight_type = node.weight_type(scales, 0, filters)
        options: dict[str, Any] = {"strides": strides, "padding": node.sides(), "output_padding": more}
        call = ops.conv2d_transpose(
            x.expr, node.literal(data), _stored_bias(node, filters), x.type, weight_type, **options
        )
        return _requantized(node, call, x.type, weight_type)
    node.require_supported(not isinstance(x, Dynamic), "reads dynamically quantized values")
    if filter_.data is None or filter_.data.dtype != np.float32:
        node.unsupported("has weights that are not a constant of float32")
    parts = filter_.data.reshape(groups, filters // groups, *filter_.shape[1:]).transpose(0, 4, 1, 2, 3)
    weights = np.ascontiguousarray(parts.reshape(shape[3], filters // groups, *filter_.shape[1:3]))
    made = node.step(
        "ConvTranspose",
        _channels_first(node, x),
        weights,
        _real_bias(node, filters),
        strides=strides,
        pads=node.sides(),
        dilations=dilation,
        group=groups,
        output_padding=more,
    )
    return node.clamped(_channels_last(node, made))


RULES: dict[str, Callable[[Node], Value]] = {
    "Conv2d": _convolution(depthwise=False),
    "ConvTranspose2d": _transposed,
    "DepthwiseConv2d": _convolution(depthwise=True),
}
