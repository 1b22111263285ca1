"""Poolings: MaxPool, AveragePool of real values, QLinearAveragePool and QLinearGlobalAveragePool."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.channels_first import in_channels_last
from service.compiler.importers.onnx.blocks import fills_blocks
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.real import float32, mean_of_images
from service.compiler.importers.onnx.operators.windows import Windows
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops.real import SEQUENTIAL, STRIPS
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_SEQUENTIAL_SINCE = 19
_MOST_WINDOWS = 1 << 24
_MOST_PLACES = 1 << 10  # positions in a window of real values; each of them becomes an operator


def max_pool(node: Node) -> relax.Var:
    """Returns the maximum of stored or real values. Stored values have the same order as the real ones."""
    windows = _windows(node)
    if windows.dilation != (1, 1):
        node.unsupported("is dilated")
    if node.dtype(0) == "float32":
        return _real_max_pool(node, windows)
    storage = node.dtype(0)
    if storage not in ("int8", "uint8"):
        node.unsupported(f"works on {storage}; only stored values of 8 bits and float32 can be compiled", node.name(0))
    quantized = node.state.types.get(node.name(0), QuantizedType(storage, (1.0,)))

    def body(x: relax.Var) -> relax.Expr:
        return ops.max_pool2d(x, quantized, quantized, **_options(windows))

    result = in_channels_last(node.emit, windows.image(node.expr(0)), body)
    return node.typed(windows.restored(result), quantized)


def _real_max_pool(node: Node, windows: Windows) -> relax.Var:
    """Returns the elementwise maximum of several images: the input, shifted to each position in the window."""
    top, left, bottom, right = windows.padding
    sides = [0, 0, 0, 0, top, bottom, left, right]
    lowest = float(np.finfo(np.float32).min)
    x = node.emit(relax.op.nn.pad(windows.image(node.expr(0)), sides, pad_value=lowest), "padded")
    largest = functools.reduce(lambda a, b: node.emit(relax.op.maximum(a, b), "largest"), _shifted(node, x, windows))
    return windows.restored(largest)


def average_pool(node: Node) -> relax.Var:
    """Returns the average of real values in ONNX Runtime's order, in float32.

    MLAS adds the rows of each window, then its columns, and divides the sum (mlas/lib/pooling.cpp). MLAS adds a window
    that covers the whole image strip by strip. From operator set 19 on, and for images that can be stored in blocks,
    ONNX Runtime adds the elements of each window one after the other (`AveragePoolV19` in
    core/providers/cpu/nn/pool.cc, mlas/lib/snchwc.cpp).
    """
    windows = _windows(node)
    if windows.dilation != (1, 1):
        node.unsupported("is dilated")
    float32(node)
    top, left, bottom, right = windows.padding
    image = windows.image(node.expr(0))
    is_sequential = node.state.model.opset >= _SEQUENTIAL_SINCE or fills_blocks(node.shape(0))
    if windows.kernel == shape_of(image)[2:] and not any(windows.padding):
        return windows.restored(mean_of_images(node, image, SEQUENTIAL if is_sequential else STRIPS))
    real = Real(node.emit, image)
    x = real.apply(relax.op.nn.pad, image, [0, 0, 0, 0, top, bottom, left, right])

    def added(parts: list[relax.Var]) -> relax.Expr:
        return functools.reduce(lambda a, b: real.apply(relax.op.add, a, b), parts)

    if is_sequential:
        x = added(_shifted(node, x, windows))
    else:
        for axis in (2, 3):
            x = added(_along(node, x, windows, axis))
    counts = node.literal(_counts(node, windows, shape_of(x)[2:]).astype(np.float32))
    return windows.restored(node.emit(relax.op.divide(x, counts)))


def _along(node: Node, x: relax.Expr, windows: Windows, axis: int) -> list[relax.Var]:
    """Returns a list of images `[N, C, H, W]`: one for each position in the window along `axis`."""
    kernel, stride, extent = windows.kernel[axis - 2], windows.strides[axis - 2], shape_of(x)[axis]
    if kernel > _MOST_PLACES:
        node.unsupported(
            f"has windows of {kernel} real values along axis {axis}; at most {_MOST_PLACES} can be compiled"
        )
    ends = [index + (extent - kernel) // stride * stride + 1 for index in range(kernel)]
    slices = [relax.op.strided_slice(x, [axis], [index], [end], [stride]) for index, end in enumerate(ends)]
    return [node.emit(each, "shifted") for each in slices]


def _shifted(node: Node, x: relax.Expr, windows: Windows) -> list[relax.Var]:
    """Returns a list of images: one for each position in the window."""
    if math.prod(windows.kernel) > _MOST_PLACES:
        node.unsupported(
            f"has windows of {math.prod(windows.kernel)} real values; at most {_MOST_PLACES} can be compiled"
        )
    return [_strided(node, x, windows, position) for position in itertools.product(*map(range, windows.kernel))]


def _strided(node: Node, x: relax.Expr, windows: Windows, first: tuple[int, ...]) -> relax.Var:
    """Returns, for each window of `[N, C, H, W]`, the element at position `first` in the window."""
    extents = shape_of(x)[2:]
    steps = zip(extents, windows.kernel, windows.strides, first, strict=True)
    ends = [position + (extent - kernel) // stride * stride + 1 for extent, kernel, stride, position in steps]
    return node.emit(relax.op.strided_slice(x, [2, 3], list(first), ends, list(windows.strides)), "shifted")


def _counts(node: Node, windows: Windows, size: tuple[int, ...]) -> Array:
    """Returns the number of elements in each window, `[1, 1, OH, OW]`."""
    if math.prod(size) > _MOST_WINDOWS:
        node.unsupported(f"has {math.prod(size)} windows for each channel; at most {_MOST_WINDOWS} can be compiled")
    if node.attribute("count_include_pad", 0):
        _inside(node, windows)
        return np.full((1, 1, *size), math.prod(windows.kernel), np.float64)
    top, left = windows.padding[:2]
    rows = []
    for axis, before in enumerate((top, left)):
        starts = np.arange(size[axis]) * windows.strides[axis] - before
        ends = np.minimum(starts + windows.kernel[axis], windows.size[axis])
        rows.append((ends - np.maximum(starts, 0)).astype(np.float64))
    return np.asarray(rows[0][:, np.newaxis] * rows[1])[np.newaxis, np.newaxis]


def _inside(node: Node, windows: Windows) -> None:
    """Requires that no window extends beyond the padding that the file defines, because elements beyond it are not
    counted.
    """
    (top, bottom), (left, right) = windows.named_padding()
    if node.attribute("ceil_mode", 0) and windows.padding != (top, left, bottom, right):
        node.unsupported(
            "counts its padding, but has windows that extend beyond it (ceil_mode), which cannot be compiled"
        )


def qlinear_average_pool(node: Node) -> relax.Var:
    """Inputs: X, x_scale, x_zero_point, y_scale, y_zero_point (com.microsoft)."""
    windows = _windows(node)
    _channels_first(node)
    in_type = node.quantized(0, 1, 2)
    out_type = node.output_type(3, 4, in_type.storage)
    whole = bool(node.attribute("count_include_pad", 0))

    def body(x: relax.Var) -> relax.Expr:
        return ops.avg_pool2d(x, in_type, out_type, **_options(windows), count_include_pad=whole)

    result = in_channels_last(node.emit, windows.image(node.expr(0)), body)
    return node.typed(windows.restored(result), out_type)


def qlinear_global_average_pool(node: Node) -> relax.Var:
    """Inputs: X, x_scale, x_zero_point, y_scale, y_zero_point (com.microsoft). Returns the mean of each channel."""
    shape = node.shape(0)
    node.require(len(shape) >= 3, f"has an input of shape {list(shape)}, not [N, C, …]", node.name(0))
    _channels_first(node)
    in_type = node.quantized(0, 1, 2)
    out_type = node.output_type(3, 4, in_type.storage)
    call = ops.mean(node.expr(0), in_type, out_type, axes=list(range(2, len(shape))), keepdims=True)
    return node.typed(node.emit(call), out_type)


def _windows(node: Node) -> Windows:
    if any(node.operator.outputs[1:]):
        node.unsupported("also returns the indices of its maxima, which cannot be compiled")
    if node.attribute("storage_order", 0):
        node.unsupported("stores columns first (storage_order), which cannot be compiled")
    return Windows(node)


def _options(windows: Windows) -> dict[str, Any]:
    return {"pool_size": windows.kernel, "strides": windows.strides, "padding": windows.padding}


def _channels_first(node: Node) -> None:
    if node.attribute("channels_last", 0):
        node.unsupported("has its channels last, which cannot be compiled")
