"""Convolutions of volumes `[N, C, D, H, W]` as convolutions of images, and operators on images with channels last.

For each position along the depth, the slices that a filter covers become the channels of one image. The sum over the
depth is then a part of the sum over the channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.importers.onnx.operators.sliding.places import FIRST, along
from service.compiler.importers.onnx.operators.windows import Axis, axes_of
from service.compiler.qnn.graph import shape_of

VOLUME = 5  # dimensions of a volume with samples and channels
_MOST_SLICES = 256
_DEPTH_LAST = (0, 2, 1, 3, 4)  # exchanges channels and depth, in both directions


def of_volumes(convert: Convert, weights: int, point: int | None = None) -> Convert:
    """Returns the converter of a convolution that also accepts volumes.

    Args:
        convert: the converter for images.
        weights: the input with the filters `[O, C / groups, KD, KH, KW]`.
        point: the input with the zero point of the volume; None if the volume has real values.
    """

    def converted(node: Node) -> Value:
        return _of_volume(node, convert, weights, point) if len(node.shape(0)) == VOLUME else convert(node)

    return converted


def _of_volume(node: Node, convert: Convert, weights: int, point: int | None) -> Value:
    (batch, channels, *sizes), filters = node.shape(0), node.shape(weights)
    node.require(len(filters) == VOLUME, f"has weights {list(filters)}, which do not fit its input")
    groups = node.attribute("group", 1)
    fits = groups > 0 and channels == filters[1] * groups and filters[0] % groups == 0
    node.require_supported(fits, f"has {channels} channels, but weights {list(filters)} in {groups} groups")
    depth, *axes = axes_of(node, sizes, filters[FIRST:])
    if depth.kernel > _MOST_SLICES:
        node.unsupported(f"has filters of depth {depth.kernel}; at most {_MOST_SLICES} can be compiled")
    x = _padded_depth(node, depth, point)
    cells = (batch * depth.count, groups, channels // groups, *sizes[1:])
    slices = [
        node.emit(relax.op.reshape(node.emit(relax.op.permute_dims(part, _DEPTH_LAST), "slice"), cells), "slice")
        for part in along(node, x, FIRST, depth)
    ]
    whole = slices[0] if len(slices) == 1 else node.emit(relax.op.concat(slices, 2), "slices")
    images = node.emit(relax.op.reshape(whole, (cells[0], depth.kernel * channels, *sizes[1:])), "images")
    value = node.value(weights)
    stacked = movement.rearrange(
        node, value, filters, _DEPTH_LAST, (filters[0], depth.kernel * filters[1], *filters[3:]), "filters"
    )
    made = convert(derived(node, {0: images, weights: stacked}, _of_images(node, axes)))
    rows = (batch, depth.count, *shape_of(made)[1:])
    return node.emit(relax.op.permute_dims(node.emit(relax.op.reshape(made, rows), "volume"), _DEPTH_LAST))


def _of_images(node: Node, axes: Sequence[Axis]) -> dict[str, object]:
    """Returns the attributes of the convolution of images."""
    kept = {name: value for name, value in node.operator.attributes.items() if name not in ("auto_pad", "kernel_shape")}
    return {
        **kept,
        "strides": tuple(axis.stride for axis in axes),
        "dilations": tuple(axis.dilation for axis in axes),
        "pads": (*(axis.before for axis in axes), *(axis.after for axis in axes)),
    }


def _padded_depth(node: Node, depth: Axis, point: int | None) -> relax.Expr:
    """Pads the depth with real zeros."""
    x, sides = node.expr(0), (depth.before, depth.after)
    if not any(sides):
        return x
    known = node.known_value(point) if point is not None and node.has(point) else np.zeros((), np.float32)
    if known is not None:
        widths = [0, 0, 0, 0, *sides, 0, 0, 0, 0]
        return node.emit(relax.op.nn.pad(x, widths, pad_value=float(known.reshape(-1)[0])), "padded")
    assert point is not None
    zero = node.emit(relax.op.reshape(node.expr(point), [1] * VOLUME), "point")
    shape = list(shape_of(x))
    parts = [x]
    for index, side in enumerate(sides):
        if side:
            shape[FIRST] = side
            fill = node.emit(relax.op.broadcast_to(zero, shape), "fill")
            parts = [fill, *parts] if index == 0 else [*parts, fill]
    return node.emit(relax.op.concat(parts, FIRST), "padded")


def channels_first(convert: Convert) -> Convert:
    """Returns the converter of an operator that also accepts images with channels last (`channels_last`)."""

    def converted(node: Node) -> Value:
        if not node.attribute("channels_last", 0):
            return convert(node)
        rank = len(node.shape(0))
        kept = {name: value for name, value in node.operator.attributes.items() if name != "channels_last"}
        turned = movement.transpose(node, node.expr(0), [0, rank - 1, *range(1, rank - 1)])
        made = convert(derived(node, {0: turned}, kept))
        return node.emit(relax.op.permute_dims(made, [0, *range(2, rank), 1]))

    return converted


def with_channels_last(convert: Convert) -> Convert:
    """Returns the converter of an operator whose images always have their channels last."""

    def converted(node: Node) -> Value:
        attributes = {**node.operator.attributes, "channels_last": 1}
        return channels_first(convert)(derived(node, {}, attributes))

    return converted
