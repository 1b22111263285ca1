"""Poolings: MaxPool, AveragePool of real values, QLinearAveragePool and QLinearGlobalAveragePool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import pooling as builder
from service.compiler.importers.onnx.blocks import fills_blocks
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import float32, mean_of_images
from service.compiler.importers.onnx.operators.sliding import pooling as sliding
from service.compiler.importers.onnx.operators.sliding.padding import with_explicit_pads
from service.compiler.importers.onnx.operators.windows import Windows
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.real import SEQUENTIAL, STRIPS
from service.compiler.qnn.types import QuantizedType

_SEQUENTIAL_SINCE = 19


def max_pool(node: Node) -> Value | tuple[Value, ...]:
    """Returns the maximum of stored or real values, and its index if an operator reads it. Stored values have the same
    order as the real ones.
    """
    given, node = node, with_explicit_pads(node)
    if any(node.operator.outputs[1:]):
        if node.name(0) != given.name(0):
            node.unsupported("removes elements at the front (auto_pad), and returns indices of its maxima")
        return sliding.largest_with_indices(node)
    if len(node.shape(0)) not in (3, 4) or set(node.attribute("dilations", (1,))) != {1}:
        return sliding.largest(node)
    windows = Windows(node)
    if node.dtype(0) == "float32":
        lowest = float(np.finfo(np.float32).min)
        builder.check_places(node, math.prod(windows.kernel))
        real = Real(node.emit, windows.image(node.expr(0)))
        return windows.restored(node.emit(builder.largest(real, windows.spread, lowest)))
    storage = node.dtype(0)
    if storage not in ("int8", "uint8"):
        node.unsupported(f"works on {storage}; only stored values of 8 bits and float32 can be compiled", node.name(0))
    quantized = node.state.types.get(node.name(0), QuantizedType(storage, (1.0,)))

    def body(x: relax.Var) -> relax.Expr:
        return ops.max_pool2d(x, quantized, quantized, **_options(windows))

    return node.typed(windows.apply(body), quantized)


def average_pool(node: Node) -> Value:
    """Returns the average of real values in ONNX Runtime's order, in float32.

    MLAS adds the rows of each window, then its columns, and divides the sum (mlas/lib/pooling.cpp). MLAS adds a window
    that covers the whole image strip by strip. From operator set 19 on, and for images that can be stored in blocks,
    ONNX Runtime adds the elements of each window one after the other (`AveragePoolV19` in
    core/providers/cpu/nn/pool.cc, mlas/lib/snchwc.cpp).
    """
    float32(node)
    node = with_explicit_pads(node)
    if len(node.shape(0)) not in (3, 4) or set(node.attribute("dilations", (1,))) != {1}:
        return sliding.average(node)
    windows = Windows(node)
    image, spread = windows.image(node.expr(0)), windows.spread
    is_sequential = node.state.model.opset >= _SEQUENTIAL_SINCE or fills_blocks(node.shape(0))
    if windows.kernel == shape_of(image)[2:] and not any(windows.padding):
        return windows.restored(mean_of_images(node, image, SEQUENTIAL if is_sequential else STRIPS))
    counts = node.literal(spread.counts(shape_of(image), _counted(node, windows)).astype(np.float32))
    real = Real(node.emit, image)
    x = spread.padded(real, 0.0)
    for axes in [(0, 1)] if is_sequential else [(0,), (1,)]:
        along = "" if is_sequential else f" along axis {spread.axes[axes[0]]}"
        builder.check_places(node, math.prod(spread.size[axis] for axis in axes), along)
        window = ([pair[axis] for axis in axes] for pair in (spread.axes, spread.size, spread.strides))
        x = node.emit(builder.combined(real, builder.shifted(real, x, *window), relax.op.add), INSIDE)
    return windows.restored(node.emit(relax.op.divide(x, counts)))


def _counted(node: Node, windows: Windows) -> builder.Sides:
    """Returns the padding that counts in an average. From operator set 19 on, windows may extend beyond it."""
    if not node.attribute("count_include_pad", 0):
        return builder.NO_SIDES
    (top, bottom), (left, right) = windows.named_padding()
    is_limited = node.state.model.opset >= _SEQUENTIAL_SINCE and node.attribute("ceil_mode", 0)
    return (top, left, bottom, right) if is_limited else windows.padding


def qlinear_average_pool(node: Node) -> relax.Var:
    """Inputs: X, x_scale, x_zero_point, y_scale, y_zero_point (com.microsoft)."""
    node = with_explicit_pads(node)
    in_type, out_type = node.stored_types()
    if len(node.shape(0)) not in (3, 4):
        return sliding.stored_average(node, in_type, out_type)
    windows = Windows(node)
    whole = bool(node.attribute("count_include_pad", 0))

    def body(x: relax.Var) -> relax.Expr:
        return ops.avg_pool2d(x, in_type, out_type, **_options(windows), count_include_pad=whole)

    return node.typed(windows.apply(body), out_type)


def qlinear_global_average_pool(node: Node) -> relax.Var:
    """Inputs: X, x_scale, x_zero_point, y_scale, y_zero_point (com.microsoft). Returns the mean of each channel."""
    shape = node.shape(0)
    node.require(len(shape) >= 3, f"has an input of shape {list(shape)}, not [N, C, …]", node.name(0))
    in_type, out_type = node.stored_types()
    call = ops.mean(node.expr(0), in_type, out_type, axes=list(range(2, len(shape))), keepdims=True)
    return node.typed(node.emit(call), out_type)


def _options(windows: Windows) -> dict[str, Any]:
    return {"pool_size": windows.kernel, "strides": windows.strides, "padding": windows.padding}
