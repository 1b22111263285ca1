"""QLinearConv."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import CHANNELS, filters_channels_last, in_channels_last
from service.compiler.importers.onnx.model import Array
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.windows import dilation_of, padding_of, strides_of
from service.compiler.qnn import ops
from service.compiler.qnn.types import accumulator_type


def qlinear_conv(node: Node) -> relax.Var:
    """x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, and a bias of int32.

    Images `[N, C, H, W]`, filters `[O, C / groups, KH, KW]` with one scale or one each.
    """
    image, weights = node.shape(0), node.shape(3)
    if len(image) != 4:
        node.unsupported(f"has an input of {list(image)}; images of [N, C, H, W] can be compiled", node.name(0))
    node.require(len(weights) == 4, f"has weights of {list(weights)} for an image", node.name(3))
    groups = node.attribute("group", 1)
    node.require(
        groups > 0 and image[1] == weights[1] * groups and weights[0] % groups == 0,
        f"has {image[1]} channels and weights of {list(weights)} in {groups} groups",
    )
    window = (weights[2], weights[3])
    node.require(node.attribute("kernel_shape", window) == window, f"has a kernel_shape other than {list(window)}")
    in_type, weight_type = node.quantized(0, 1, 2), node.quantized(3, 4, 5, axis=0)
    out_type = node.output_type(6, 7, in_type.storage)
    strides, dilation = strides_of(node), dilation_of(node)
    padding = padding_of(node, image, window, strides, dilation)
    weight, bias = node.constant(3, filters_channels_last), bias_of(node, 8, weights[0])

    def body(x: relax.Var) -> relax.Expr:
        call = ops.conv2d(
            x,
            weight,
            bias,
            in_type,
            weight_type,
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )
        accumulated = node.emit(call, "accumulate")
        return ops.requantize(accumulated, accumulator_type(in_type, weight_type, axis=CHANNELS), out_type)

    return node.typed(in_channels_last(node.emit, node.expr(0), body), out_type)


def bias_of(node: Node, place: int, filters: int) -> relax.Constant | None:
    """One int32 for each filter, at the accumulators' scale; ONNX Runtime looks at no other."""
    if not node.has(place):
        return None
    bias = node.data(place)
    node.require(bias.dtype == np.int32, f"has a bias of {bias.dtype}, not int32", node.name(place))
    node.require(bias.size == filters, f"has a bias of {list(bias.shape)} for {filters} filters", node.name(place))
    return node.constant(place, flat)


def flat(values: Array) -> Array:
    return values.reshape(-1)
