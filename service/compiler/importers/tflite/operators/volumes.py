"""CONV_3D and CONV_3D_TRANSPOSE of float32 volumes `[N, D, H, W, C]`, each as one convolution of images.

The slices of a volume that a window covers become the channels of an image, so that the sum over the depth is a part of
the sum over the channels.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.geometry import SAME, VALID, output_size, padding_of
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.convolution import bias_of_reals
from service.compiler.importers.tflite.operators.elementwise import clamped
from service.compiler.importers.tflite.operators.rule import FLOAT, Rule
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_MOST_SLICES = 1 << 6
_MOST_ELEMENTS = 1 << 28
Sides = tuple[int, int]


def conv3d(node: Node) -> relax.Expr:
    """Converts CONV_3D; the filters are `[KD, KH, KW, C, O]` (tflite/kernels/conv3d.cc)."""
    shape, weights = node.input(0).shape, _weights(node)
    node.require(len(shape) == 5 and shape[4] == weights.shape[3], f"has {list(weights.shape)} for {list(shape)}")
    strides, dilations = _steps(node, "stride"), _steps(node, "dilation", "_factor")
    axes = zip(shape[1:4], weights.shape[:3], strides, dilations, strict=True)
    sides = [padding_of(_scheme(node), *axis) for axis in axes]
    x = _padded_volume(node, node.expr(0), sides)
    sums = _convolved(node, x, weights, strides, dilations, bias_of_reals(node, weights.shape[4]))
    return clamped(node, sums, node.activation())


def conv3d_transpose(node: Node) -> relax.Expr:
    """Converts CONV_3D_TRANSPOSE: a convolution of the input, between whose elements zeros are inserted, with the
    filters `[KD, KH, KW, O, C]` in reverse order. The inputs are the output's shape, the filters, x and the bias
    (tflite/kernels/conv3d_transpose.cc).
    """
    target, weights = tuple(node.integers(0).reshape(-1).tolist()), _weights(node)
    shape = node.input(2).shape
    node.require(len(shape) == 5 and shape[4] == weights.shape[4], f"has {list(weights.shape)} for {list(shape)}")
    fits = len(target) == 5 and (target[0], target[4]) == (shape[0], weights.shape[3]) and min(target) > 0
    node.require(fits, f"cannot compute shape {list(target)} from {list(shape)}")
    if math.prod(target) > _MOST_ELEMENTS:
        node.unsupported(f"computes {math.prod(target)} elements; at most {_MOST_ELEMENTS} can be compiled")
    strides, dilations, scheme = _steps(node, "stride"), _steps(node, "dilation", "_factor"), _scheme(node)
    x, sides = node.expr(2), []
    for axis in range(3):
        size, window, step, dilation = target[axis + 1], weights.shape[axis], strides[axis], dilations[axis]
        made = output_size(scheme, size, window, step, dilation)
        node.require(made == shape[axis + 1], f"cannot compute size {size} from {shape[axis + 1]}")
        x = _spread(node, x, axis + 1, step)
        reach = (window - 1) * dilation
        before = reach - padding_of(scheme, size, window, step, dilation)[0]
        sides.append((before, size + reach - before - shape_of(x)[axis + 1]))
    kernel = np.ascontiguousarray(weights[::-1, ::-1, ::-1].transpose(0, 1, 2, 4, 3))
    bias = bias_of_reals(node, weights.shape[3], 3)
    sums = _convolved(node, _padded_volume(node, x, sides), kernel, (1, 1, 1), dilations, bias)
    return clamped(node, sums, node.activation())


def _convolved(
    node: Node,
    x: relax.Expr,
    weights: Array,
    strides: tuple[int, int, int],
    dilations: tuple[int, int, int],
    bias: relax.Expr | None,
) -> relax.Expr:
    """Convolves a padded volume with filters `[KD, KH, KW, C, O]`."""
    count, depth, height, width, channels = shape_of(x)
    windows, rows, columns, _, filters = weights.shape
    reach = (windows - 1) * dilations[0]
    made = (depth - reach - 1) // strides[0] + 1
    node.require(made > 0, f"has a window of {windows}, which does not fit a depth of {depth}")
    if windows > _MOST_SLICES:
        node.unsupported(f"has windows of depth {windows}; at most {_MOST_SLICES} can be compiled")
    if count * made * height * width * channels * windows > _MOST_ELEMENTS:
        node.unsupported("has a volume that is too large")
    slices = []
    for each in range(windows):
        first = each * dilations[0]
        last = first + (made - 1) * strides[0] + 1
        slices.append(node.emit(relax.op.strided_slice(x, [1], [first], [last], [strides[0]]), "slice"))
    joined = slices[0] if windows == 1 else node.emit(relax.op.concat(slices, 4), "slices")
    images = node.emit(relax.op.reshape(joined, (count * made, height, width, windows * channels)), "images")
    node.reserve(weights.nbytes)
    kernel = np.ascontiguousarray(weights.transpose(4, 1, 2, 0, 3).reshape(filters, rows, columns, -1))
    call = ops.real_conv2d(images, relax.const(kernel), bias, strides=strides[1:], dilation=dilations[1:])
    sums = node.emit(call, "sums")
    return node.emit(relax.op.reshape(sums, (count, made, *shape_of(sums)[1:])), "volume")


def _spread(node: Node, x: relax.Expr, axis: int, step: int) -> relax.Expr:
    """Inserts `step` - 1 zeros between the elements along an axis."""
    shape = shape_of(x)
    if step == 1:
        return x
    cells = node.emit(relax.op.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :])), "cells")
    widths = [0] * (2 * len(shape) + 2)
    widths[2 * axis + 3] = step - 1
    wide = node.emit(relax.op.nn.pad(cells, widths), "wide")
    whole = node.emit(relax.op.reshape(wide, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :])), "whole")
    return node.emit(relax.op.strided_slice(whole, [axis], [0], [(shape[axis] - 1) * step + 1]), "spread")


def _padded_volume(node: Node, x: relax.Expr, sides: list[Sides]) -> relax.Expr:
    """Pads depth, height and width with zeros; negative numbers cut elements off."""
    shape = shape_of(x)
    padded = [shape[0], *(size + sum(pair) for size, pair in zip(shape[1:4], sides, strict=True)), shape[4]]
    node.require(min(padded) > 0, f"has windows that do not fit {list(shape)}")
    if math.prod(padded) > _MOST_ELEMENTS:
        node.unsupported(f"pads its input to {padded}, which is too large")
    for axis, (before, after) in enumerate(sides, start=1):
        if min(before, after) < 0:
            first, last = max(0, -before), shape[axis] - max(0, -after)
            x = node.emit(relax.op.strided_slice(x, [axis], [first], [last]), "cut")
    widths = [max(0, each) for pair in ((0, 0), *sides, (0, 0)) for each in pair]
    return node.emit(relax.op.nn.pad(x, widths), "padded") if any(widths) else x


def _weights(node: Node) -> Array:
    data = node.data(1)
    node.require(data.ndim == 5 and 0 not in data.shape, f"has filters of shape {list(data.shape)}", node.input(1))
    if data.dtype != np.float32:
        node.unsupported(f"has weights of {data.dtype}, not float32", node.input(1))
    return data


def _steps(node: Node, name: str, suffix: str = "") -> tuple[int, int, int]:
    depth, height, width = (node.int_option(f"{name}_{axis}{suffix}", least=1) for axis in "dhw")
    return depth, height, width


def _scheme(node: Node) -> int:
    scheme = node.int_option("padding")
    node.require(scheme in (SAME, VALID), f"has the unknown padding scheme {scheme}")
    return scheme


RULES: dict[str, Rule] = {
    "CONV_3D": Rule(conv3d, (2, 3), reads=FLOAT, writes=FLOAT),
    "CONV_3D_TRANSPOSE": Rule(conv3d_transpose, (3, 4), first=2, reads=FLOAT, writes=FLOAT),
}
