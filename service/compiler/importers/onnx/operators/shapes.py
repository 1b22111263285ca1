"""Operators on shapes and axes, computed while importing: how exporters write `x.view(x.size(0), -1)`."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.schema import DTYPES

_CASTS = ("int64", "int32", "float32", "bool")


def shape(node: Node) -> Value:
    extents = node.shape(0)
    start, end = node.attribute("start", 0), node.attribute("end", len(extents))
    return np.array(extents[slice(start, end)], np.int64)


def gather(node: Node) -> Value:
    data, indices = node.data(0), node.data(1)
    axis = node.attribute("axis", 0)
    node.require(-data.ndim <= axis < data.ndim, f"has axis {axis} of {data.ndim}")
    size = data.shape[axis]
    node.require(indices.dtype.kind == "i" and bool((np.abs(indices + 0.5) < size).all()), "has indices out of range")
    if indices.size * data.size > 1 << 16:
        node.unsupported("gathers from a table; embeddings are not compiled")
    return node.folded(np.take(data, indices, axis))


def cast(node: Node) -> Value:
    to = DTYPES.get(node.attribute("to", 0), "nothing")
    known = node.known(0)
    if to == node.dtype(0):
        return known if known is not None else node.emit(node.expr(0))
    if known is None or to not in _CASTS:
        node.unsupported(f"casts {node.dtype(0)} to {to} at run time")
    return node.folded(known.astype(to))


def slice_(node: Node) -> Value:
    """data, starts, ends, axes, steps; of constants only."""
    data = node.data(0)
    starts, ends = node.integers(1), node.integers(2)
    axes = node.integers(3) if node.has(3) else tuple(range(len(starts)))
    steps = node.integers(4) if node.has(4) else (1,) * len(starts)
    node.require(
        len(starts) == len(ends) == len(axes) == len(steps), "has starts, ends, axes and steps of other lengths"
    )
    node.require(
        0 not in steps and all(-data.ndim <= axis < data.ndim for axis in axes), f"slices the axes {list(axes)[:8]}"
    )
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        before_first = step < 0 and end < -data.shape[axis]
        index[axis] = slice(start, None if before_first else end, step)
    return node.folded(data[tuple(index)])


def constant_of_shape(node: Node) -> Value:
    extents, value = node.integers(0), node.attribute("value", None)
    node.require(all(0 <= size <= 1 << 16 for size in extents) and len(extents) <= 8, f"fills {list(extents)[:8]}")
    fill = np.zeros(1, np.float32) if not isinstance(value, Tensor) else value.data
    if fill is None or fill.size != 1:
        node.malformed("has a value that is not one number")
    node.folded(np.broadcast_to(np.zeros(1, bool), extents))  # checks the size before it is taken
    return np.full(extents, fill.reshape(-1)[0])
