"""Operators on shapes and axes, computed while importing: how exporters write `x.view(x.size(0), -1)`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.model import Array, Tensor
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import reduced_axes
from service.compiler.importers.onnx.schema import DTYPES

_LONGEST = 1 << 16  # of a row that is counted
_CASTS = ("int64", "int32", "float32", "bool")


def shape(node: Node) -> Value:
    extents = node.shape(0)
    start, end = node.attribute("start", 0), node.attribute("end", len(extents))
    return np.array(extents[slice(start, end)], np.int64)


def cast(node: Node) -> Value:
    """Casts values that are known while importing; at run time, those that cannot be out of range."""
    to = DTYPES.get(node.attribute("to", 0), "nothing")
    known, dtype = node.known(0), node.dtype(0)
    if known is not None and to in _CASTS:
        return node.folded(known.astype(to))
    if to == dtype:
        return known if known is not None else node.kept(node.emit(node.expr(0)))
    if known is not None or to not in _CASTS or (dtype.startswith("float") and to != "bool"):
        node.unsupported(f"casts {dtype} to {to} at run time")
    if to == "bool":
        return node.emit(relax.op.not_equal(node.expr(0), node.literal(np.array(0, dtype))))
    return node.emit(relax.op.astype(node.expr(0), to))


def constant_of_shape(node: Node) -> Value:
    extents, value = node.integers(0), node.attribute("value", None)
    node.require(all(0 <= size <= 1 << 16 for size in extents) and len(extents) <= 8, f"fills {list(extents)[:8]}")
    fill = np.zeros(1, np.float32) if not isinstance(value, Tensor) else value.data
    if fill is None or fill.size != 1:
        node.malformed("has a value that is not one number")
    node.folded(np.broadcast_to(np.zeros(1, bool), extents))  # checks the size before it is taken
    return np.full(extents, fill.reshape(-1)[0])


def size(node: Node) -> Value:
    return np.array(math.prod(node.shape(0)), np.int64)


# -- of shapes alone: these are compiled where their operands are known, and nowhere else


def known(compute: Callable[..., Any]) -> Callable[[Node], Value]:
    """An operator on what is known already: `compute` takes the node and its operands' elements."""

    def convert(node: Node) -> Value:
        operands = [node.data(place) for place in range(node.input_count) if node.has(place)]
        try:
            with np.errstate(all="ignore"):
                return node.folded(compute(node, *operands))
        except (ValueError, TypeError, IndexError, OverflowError):
            node.malformed("has operands that do not fit together")

    return convert


def range_(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    first, end, step = (float(value.reshape(-1)[0]) for value in (start, limit, delta))
    node.require(step != 0 and (end - first) / step <= _LONGEST, f"counts from {first} to {end} by {step}")
    return np.arange(first, end, step).astype(start.dtype)


def modulo(node: Node, dividend: Array, divisor: Array) -> Array:
    node.require(bool((divisor != 0).all()), "divides by zero")
    return np.asarray((np.fmod if node.attribute("fmod", 0) else np.mod)(dividend, divisor))


def reduce_prod(node: Node, data: Array, *_axes: Array) -> Array:
    axes, keepdims = reduced_axes(node)
    return np.asarray(np.prod(data, axis=tuple(axes), keepdims=keepdims, dtype=data.dtype)) if axes else data


def non_zero(_node: Node, data: Array) -> Array:
    return np.array(np.nonzero(data), np.int64)


def cumulative_sum(node: Node, data: Array, axis: Array) -> Array:
    if node.attribute("exclusive", 0) or node.attribute("reverse", 0):
        node.unsupported("sums what is before, or from the end")
    return np.cumsum(data, int(axis.reshape(-1)[0]), data.dtype)
