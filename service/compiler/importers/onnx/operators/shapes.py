"""Operators on shapes and axes, computed while importing: how exporters write `x.view(x.size(0), -1)`."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.schema import DTYPES

_CASTS = ("int64", "int32", "float32", "bool")


def shape(node: Node) -> Value:
    extents = node.shape(0)
    start, end = node.attribute("start", 0), node.attribute("end", len(extents))
    return np.array(extents[slice(start, end)], np.int64)


def cast(node: Node) -> Value:
    """Of what is known, and at run time where no value can be out of range."""
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
