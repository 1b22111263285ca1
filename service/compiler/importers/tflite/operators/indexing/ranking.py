"""TOPK_V2, BUCKETIZE, and WHERE of constants."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.indexing.gathering import same_type_of_data
from service.compiler.qnn import ops


def top_k(node: Node) -> list[relax.Expr]:
    """Converts TOPK_V2: the largest values along the last axis, and their positions. Of equal values, the first one is
    preferred (`TopContainer` in tflite/kernels/topk_v2.cc).
    """
    same_type_of_data(node)
    shape, count = node.input(0).shape, node.scalar(1)
    node.require(bool(shape) and 0 <= count <= shape[-1], f"selects {count} of the last axis of {list(shape)}")
    node.require_supported(count > 0, "selects 0 elements, which leaves an empty tensor")
    node.require(len(node.outputs) == 2, f"has {len(node.outputs)} outputs, not 2")
    places = node.emit(ops.top_places(_keys(node), count=count), "places")
    values = node.emit(relax.op.gather_elements(node.expr(0), places, len(shape) - 1))
    found = node.outputs[1]
    return [values, node.emit(relax.op.astype(places, found.dtype), tensor=found)]


def _keys(node: Node) -> relax.Expr:
    """Returns float64 or int64 keys. NaN has the smallest key."""
    x, dtype = node.expr(0), node.input(0).dtype
    if dtype != "float32":
        return x if dtype == "int64" else node.emit(relax.op.astype(x, "int64"), "wide")
    wide = node.emit(relax.op.astype(x, "float64"), "wide")
    low = relax.const(np.array(-math.inf), "float64")
    return node.emit(relax.op.where(node.emit(relax.op.isnan(wide), "nan"), low, wide), "keys")


def bucketize(node: Node) -> relax.Expr:
    """Converts BUCKETIZE: for each element, the number of boundaries that are not greater (`Eval` in
    tflite/kernels/bucketize.cc, which compares as float32).
    """
    boundaries = np.array(node.option("boundaries"), np.float32)
    node.require(bool(np.all(boundaries[:-1] <= boundaries[1:])), "has boundaries that are not in order")
    shape = node.input(0).shape
    node.expect_shape((*shape, len(boundaries)))
    if not len(boundaries):
        return node.emit(relax.op.broadcast_to(relax.const(np.array(0, np.int32)), shape))
    cells = node.emit(relax.op.reshape(node.expr(0), (*shape, 1)), "cells")
    real = cells if node.input(0).dtype == "float32" else node.emit(relax.op.astype(cells, "float32"), "real")
    reached = node.emit(relax.op.less(real, relax.const(boundaries)), "less")
    below = node.emit(relax.op.astype(node.emit(relax.op.logical_not(reached), "reached"), "int32"), "counted")
    return node.emit(relax.op.sum(below, axis=[len(shape)]))


def where(node: Node) -> relax.Expr:
    """Returns the positions of the elements that are not zero. The number of positions determines the output's shape,
    so the input must be constant.
    """
    tensor = node.input(0)
    found = node.data_if_constant(0)
    if found is None:
        node.unsupported(
            "returns as many positions as there are true elements, but every tensor of a build has a fixed shape",
            tensor,
            hint="export the model without it, for example with a mask instead of a list of positions",
        )
    return node.literal(np.argwhere(found).astype(np.int64))
