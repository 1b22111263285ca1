"""MaxUnpool, which writes the maxima of a MaxPool back to their positions, and Col2Im, which adds windows up."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.onnx.operators.scattering import scatter_elements
from service.compiler.importers.onnx.operators.sliding.places import FIRST
from service.compiler.importers.onnx.operators.windows import axes_of
from service.compiler.qnn.graph import shape_of

_MOST_ELEMENTS = 1 << 28


def max_unpool(node: Node) -> Value:
    """Inputs: X `[N, C, …]`, the flat indices of its elements in the result, the shape of the result. All other
    elements are 0.
    """
    float32(node)
    shape, wanted = node.shape(0), node.shape(1)
    rank = len(shape) - FIRST
    node.require(rank > 0 and wanted == shape, f"has indices {list(wanted)} for {list(shape)}")
    node.require(node.dtype(1) == "int64", f"has indices of {node.dtype(1)}, not int64", node.name(1))
    kernel = node.attribute("kernel_shape", ())
    node.require(len(kernel) == rank, f"has the kernel_shape {list(kernel)[:8]} for an input {list(shape)}")
    strides = node.integers_attribute("strides", (1,) * rank, 1)
    pads = node.integers_attribute("pads", (0,) * (2 * rank), 0)
    each = zip(shape[FIRST:], kernel, strides, pads[:rank], pads[rank:], strict=True)
    sizes = [(size - 1) * step + window - before - after for size, window, step, before, after in each]
    target = list(node.integers(2)) if node.has(2) else [*shape[:FIRST], *sizes]
    fits = len(target) == len(shape) and min(target) > 0 and tuple(target[:FIRST]) == shape[:FIRST]
    node.require(fits, f"has the result {target[:8]} for an input {list(shape)}")
    node.require_supported(math.prod(target) <= _MOST_ELEMENTS, f"has a result {target}, which is too large")
    total, count = math.prod(target), math.prod(shape)
    zero = relax.const(np.zeros((1, 1), np.float32))
    data = node.emit(relax.op.broadcast_to(zero, (1, total)), "empty")
    updates = node.emit(relax.op.reshape(node.expr(0), (1, count)), "updates")
    positions = node.emit(relax.op.reshape(node.expr(1), (1, count)), "positions")
    flat = scatter_elements(derived(node, {0: data, 1: positions, 2: updates}, {"axis": 1}, op_type="ScatterElements"))
    return node.emit(relax.op.reshape(flat, target))


def col2im(node: Node) -> Value:
    """Inputs: columns `[N, C * product of the block, L]`, the shape of the image, the shape of the blocks. Adds the
    elements of all blocks at their positions in the image.
    """
    float32(node)
    shape, image, block = node.shape(0), node.integers(1), node.integers(2)
    rank, places = len(image), math.prod(block)
    fits = len(shape) == 3 and len(block) == rank > 0 and min(*image, *block) > 0 and shape[1] % places == 0
    node.require(fits, f"has columns {list(shape)} for blocks {list(block)[:8]} and an image {list(image)[:8]}")
    axes = axes_of(node, image, block)
    counts = [axis.count for axis in axes]
    node.require(math.prod(counts) == shape[2], f"has {shape[2]} columns, not {math.prod(counts)}")
    sizes = [axis.size + axis.before + axis.after for axis in axes]
    lead = (shape[0], shape[1] // places)
    node.require_supported(
        places <= 1 << 10 and math.prod((*lead, *sizes)) <= _MOST_ELEMENTS, "has an image or blocks that are too large"
    )
    apart = node.emit(relax.op.reshape(node.expr(0), (*lead, places, *counts)), "columns")
    total = None
    for index, position in enumerate(product(*map(range, block))):
        part = node.emit(relax.op.strided_slice(apart, [2], [index], [index + 1]), "block")
        x = node.emit(relax.op.reshape(part, (*lead, *counts)), "block")
        for offset, (axis, at, size) in enumerate(zip(axes, position, sizes, strict=True)):
            x = spread(node, x, FIRST + offset, axis.stride, at * axis.dilation, size)
        total = x if total is None else node.emit(relax.op.add(total, x), "sum")
    inner = range(FIRST, FIRST + rank)
    starts, ends = [axis.before for axis in axes], [axis.before + axis.size for axis in axes]
    return node.emit(relax.op.strided_slice(total, list(inner), starts, ends))


def spread(node: Node, x: relax.Expr, index: int, stride: int, first: int, size: int) -> relax.Expr:
    """Returns an axis of `size` zeros with the elements of `x` at `first`, `first + stride`, …"""
    shape = shape_of(x)
    if stride > 1:
        cells = node.emit(relax.op.reshape(x, (*shape[: index + 1], 1, *shape[index + 1 :])), "cells")
        widths = [0] * (2 * len(shape) + 2)
        widths[2 * index + 3] = stride - 1
        wide = node.emit(relax.op.nn.pad(cells, widths), "wide")
        x = node.emit(relax.op.reshape(wide, (*shape[:index], shape[index] * stride, *shape[index + 1 :])), "wide")
        last = (shape[index] - 1) * stride + 1
        x = node.emit(relax.op.strided_slice(x, [index], [0], [last]), "apart")
    widths = [0] * (2 * len(shape))
    widths[2 * index : 2 * index + 2] = first, size - first - shape_of(x)[index]
    return node.emit(relax.op.nn.pad(x, widths), "placed") if any(widths) else x


UNPOOLING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "Col2Im": (col2im, (3, 3)),
    "MaxUnpool": (max_unpool, (2, 3)),
}
