"""Poolings of volumes, dilated poolings, and maxima with their indices.

The largest element of a window is found along one axis after the other. Averages add the elements in the order of their
indices, as ONNX Runtime does (core/providers/cpu/nn/pool_functors.h).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.sliding.places import (
    FIRST,
    along,
    counts,
    indices,
    padded,
    places,
    pooled_axes,
)
from service.compiler.importers.onnx.operators.windows import Axis
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

# Before this operator set, padding also counts if only the last window reaches it (ceil_mode).
LIMITED_SINCE = 19
_DTYPES = ("float32", "int8", "uint8")


def largest(node: Node) -> Value:
    """Returns the largest element of each window. Padding is never the largest."""
    axes = pooled_axes(node)
    x = padded(node, node.expr(0), axes, _lowest(node))
    for offset, axis in enumerate(axes):
        parts = along(node, x, FIRST + offset, axis)
        x = reduce(lambda one, other: node.emit(relax.op.maximum(one, other), INSIDE), parts)
    return node.with_input_type(node.emit(x))


def largest_with_indices(node: Node) -> tuple[Value, ...]:
    """Returns the largest element of each window, and its index in the flat input, int64. The first of several equal
    elements counts. With `storage_order`, the index counts along columns first.
    """
    axes, lowest, shape = pooled_axes(node), _lowest(node), node.shape(0)
    found = places(node, padded(node, node.expr(0), axes, lowest), axes)
    sizes = [axis.size for axis in axes]
    order = range(len(axes)) if node.attribute("storage_order", 0) else range(len(axes))[::-1]
    steps = dict.fromkeys(order, 1)
    for place, index in enumerate(order):
        steps[index] = math.prod(sizes[each] for each in list(order)[:place])
    best = at = None
    seen: Array = np.zeros([1] * (FIRST + len(axes)), bool)
    for value, position in zip(found, indices(axes), strict=True):
        flat, inside = _flat(position, sizes, [steps[each] for each in range(len(axes))])
        own = node.literal(flat)
        if best is None or at is None:
            best, at, seen = value, own, inside
            continue
        more = node.emit(relax.op.greater(value, best), "more")
        if not inside.all():
            more = node.emit(relax.op.logical_and(more, node.literal(inside)), "more")
        if not seen.all():
            more = node.emit(relax.op.logical_or(more, node.literal(inside & ~seen)), "more")
        best = node.emit(relax.op.where(more, value, best), "largest")
        at, seen = node.emit(relax.op.where(more, own, at), "index"), seen | inside
    base = np.arange(math.prod(shape[:FIRST])).reshape(*shape[:FIRST], *[1] * len(axes)) * math.prod(sizes)
    return node.with_input_type(node.emit(best)), node.emit(relax.op.add(at, node.literal(base)), "indices")


def _flat(position: Sequence[Array], sizes: Sequence[int], steps: Sequence[int]) -> tuple[Array, Array]:
    """Returns the index of each window's element within its channel, `[1, 1, …]` int64, and true where the element is
    not padding.
    """
    rank = len(sizes)
    index: Array = np.zeros([1] * (FIRST + rank), np.int64)
    inside: Array = np.ones([1] * (FIRST + rank), bool)
    for axis, (at, size, step) in enumerate(zip(position, sizes, steps, strict=True)):
        shaped = at.reshape(-1, *[1] * (rank - axis - 1))
        index, inside = index + shaped * step, inside & (shaped >= 0) & (shaped < size)
    return index, inside


def _lowest(node: Node) -> float:
    dtype = node.dtype(0)
    if dtype not in _DTYPES:
        node.unsupported(f"works on {dtype}; only stored values of 8 bits and float32 can be compiled", node.name(0))
    return -math.inf if dtype == "float32" else float(np.iinfo(dtype).min)


def average(node: Node, counted: Sequence[tuple[int, int]] | None = None) -> Value:
    """Returns the average of float32 values.

    Args:
        counted: the padding that counts; None to follow the attribute `count_include_pad`.
    """
    axes = pooled_axes(node)
    if counted is None:
        is_counted = bool(node.attribute("count_include_pad", 0))
        is_limited = node.state.model.opset >= LIMITED_SINCE
        whole = [axis.named if is_limited else (axis.before, axis.after) for axis in axes]
        counted = whole if is_counted else [(0, 0)] * len(axes)
    return node.emit(averaged(node, node.expr(0), axes, counted))


def averaged(node: Node, x: relax.Expr, axes: Sequence[Axis], counted: Sequence[tuple[int, int]]) -> relax.Call:
    parts = places(node, padded(node, x, axes, 0.0), axes)
    total = reduce(lambda one, other: node.emit(relax.op.add(one, other), INSIDE), parts)
    number = np.maximum(counts(axes, counted), 1)  # a window without elements has the average 0
    return relax.op.divide(total, node.literal(number))


def stored_average(node: Node, in_type: QuantizedType, out_type: QuantizedType) -> relax.Var:
    """Returns the average of stored values, which is computed on real values
    (contrib_ops/cpu/quantization/qlinear_pool.cc).
    """
    axes = pooled_axes(node)
    is_counted = bool(node.attribute("count_include_pad", 0))
    counted = [(axis.before, axis.after) if is_counted else (0, 0) for axis in axes]
    real = node.emit(ops.dequantize(node.expr(0), in_type), "real")
    return node.typed(node.emit(ops.quantize(node.emit(averaged(node, real, axes, counted)), out_type)), out_type)
