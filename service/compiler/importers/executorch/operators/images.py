"""Poolings and resizing of images `[N, H, W, C]`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from service.compiler.importers.builder import pooling
from service.compiler.importers.channels_first import TO_CHANNELS_FIRST, TO_CHANNELS_LAST
from service.compiler.importers.executorch.node import Node
from service.compiler.importers.executorch.values import Stored, Value
from service.compiler.qnn import ops

_KEEP_DIMS = 0x40  # XNN_FLAG_KEEP_DIMS
_LEGACY, _ALIGN_CORNERS = 0x4, 0x8  # XNN_FLAG_TENSORFLOW_LEGACY_MODE, XNN_FLAG_ALIGN_CORNERS
_PIXELS = (1, 2)  # the axes of rows and columns


def _pool(op_type: str) -> Callable[[Node], Value]:
    """Returns the rule of MaxPooling2d or AvgPooling2d. An average counts only elements of the image."""

    def convert(node: Node) -> Value:
        node.check_flags(_KEEP_DIMS)
        x = node.value("input_id")
        size, strides, dilation = node.pair("pooling", 1), node.pair("stride", 1), (1, 1)
        if op_type == "MaxPool":
            dilation = node.pair("dilation", 1)
        if isinstance(x, Stored):
            return _stored_pool(node, x, op_type, (size, strides, dilation))
        planes = node.step("Transpose", node.expr("input_id"), perm=TO_CHANNELS_FIRST)
        options = {"kernel_shape": size, "strides": strides, "pads": node.sides()}
        if dilation != (1, 1):
            options["dilations"] = dilation
        return node.clamped(node.step("Transpose", node.step(op_type, planes, **options), perm=TO_CHANNELS_LAST))

    return convert


def _stored_pool(node: Node, x: Stored, op_type: str, window: tuple[tuple[int, int], ...]) -> Stored:
    size, strides, dilation = window
    node.require_supported(
        op_type == "MaxPool" and dilation == (1, 1), "has no rule for stored values with this kind of window"
    )
    out_type = node.out_type()
    windows = pooling.Windows(_PIXELS, size, strides, node.sides())
    return Stored(node.emit(pooling.pooled(node, x.expr, windows, (x.type, out_type), is_max=True)), out_type)


def _global_average(node: Node) -> Value:
    keeps = bool(node.check_flags(_KEEP_DIMS))
    x = node.value("input_id")
    node.require(len(node.extents(x)) == 4, "has an input that is not an image")
    if isinstance(x, Stored):
        out_type = node.out_type()
        call = ops.mean(x.expr, x.type, out_type, axes=list(_PIXELS), keepdims=keeps)
        return Stored(node.emit(call), out_type)
    axes = np.array(_PIXELS, np.int64)
    return node.clamped(node.step("ReduceMean", node.expr("input_id"), axes, keepdims=int(keeps)))


def _resize_bilinear(node: Node) -> Value:
    flags = node.check_flags(_LEGACY | _ALIGN_CORNERS)
    x, size = node.value("input_id"), (node.integer("new_height", 1), node.integer("new_width", 1))
    shape = node.extents(x)
    node.require(len(shape) == 4, "has an input that is not an image")
    if isinstance(x, Stored):
        options = {"align_corners": bool(flags & _ALIGN_CORNERS), "half_pixel_centers": not flags}
        call = ops.resize_bilinear(x.expr, x.type, x.type, size=size, **options)
        return Stored(node.emit(call), x.type)
    mode = "align_corners" if flags & _ALIGN_CORNERS else ("asymmetric" if flags else "half_pixel")
    planes = node.step("Transpose", node.expr("input_id"), perm=TO_CHANNELS_FIRST)
    sizes = np.array((shape[0], shape[3], *size), np.int64)
    made = node.step("Resize", planes, None, None, sizes, mode="linear", coordinate_transformation_mode=mode)
    return node.step("Transpose", made, perm=TO_CHANNELS_LAST)


RULES: dict[str, Callable[[Node], Value]] = {
    "AvgPooling2d": _pool("AveragePool"),
    "GlobalAvgPooling2d": _global_average,
    "MaxPooling2d": _pool("MaxPool"),
    "StaticResizeBilinear2D": _resize_bilinear,
}
