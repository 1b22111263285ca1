"""ScatterND and ScatterElements: return the data, changed by updates at positions that a tensor of indices gives.

Indices are treated as in `indexing`. If the positions are constant and elements are replaced, the result is read from
the concatenation of data and updates.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.indexing import indices_of, inside
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.ops import scattering
from service.core.models.arrays import Array

_MOST_WRITES = 1 << 22
_REDUCTIONS = {
    "none": scattering.REPLACE,
    "add": scattering.ADD,
    "mul": scattering.MULTIPLY,
    "max": scattering.MAX,
    "min": scattering.MIN,
}


def scatter_nd(node: Node) -> Value:
    """Inputs: data, indices, updates. Each row of the indices selects a part of the data. If several updates change the
    same part, they are applied in order.
    """
    shape, wanted, known = node.shape(0), node.shape(1), node.known_value(1)
    depth = wanted[-1] if wanted else 0
    node.require(0 < depth <= len(shape), f"has indices {list(wanted)}, which do not fit the data {list(shape)}")
    named, rest = shape[:depth], shape[depth:]
    node.require(
        node.shape(2) == (*wanted[:-1], *rest),
        f"has updates {list(node.shape(2))}, which do not fit the indices {list(wanted)}",
    )
    if known is not None:
        rows = inside(node, known, np.array(named)).reshape(-1, depth)
        positions = np.asarray(np.ravel_multi_index(tuple(rows.T), named) if rows.size else (), np.int64)
        return _scatter_rows(node, positions, math.prod(named), math.prod(rest))
    steps = [math.prod(named[index + 1 :]) for index in range(depth)]
    indices = indices_of(node, node.expr(1), None, named)
    scaled = node.emit(relax.op.multiply(indices, node.literal(np.array(steps, np.int64))), "steps")
    return _scatter_rows(
        node, node.emit(relax.op.sum(scaled, axis=[len(wanted) - 1]), "places"), math.prod(named), math.prod(rest)
    )


def scatter_elements(node: Node) -> Value:
    """Inputs: data, indices, updates, as for `scatter_nd`. Each index is a position along one axis; along the other
    axes, the position is that of the index itself.
    """
    shape, wanted, known = node.shape(0), node.shape(1), node.known_value(1)
    node.require(len(wanted) == len(shape) > 0, f"has indices {list(wanted)}, which do not fit the data {list(shape)}")
    node.require(
        node.shape(2) == wanted, f"has updates {list(node.shape(2))}, which do not fit the indices {list(wanted)}"
    )
    axis = node.axis(node.attribute("axis", 0), len(shape))
    fits = all(a <= b for index, (a, b) in enumerate(zip(wanted, shape, strict=True)) if index != axis)
    node.require(fits, f"has indices {list(wanted)}, which do not fit the data {list(shape)}")
    others: Array = np.zeros(wanted, np.int64)
    for index, size in enumerate(wanted):
        if index != axis:
            own = np.arange(size).reshape(-1, *[1] * (len(shape) - index - 1))
            others = others + own * math.prod(shape[index + 1 :])
    step = math.prod(shape[axis + 1 :])
    if known is not None:
        return _scatter_rows(node, others + inside(node, known, shape[axis]) * step, math.prod(shape), 1)
    indices = indices_of(node, node.expr(1), None, [shape[axis]])
    scaled = node.emit(relax.op.multiply(indices, node.literal(np.array(step, np.int64))), "steps")
    return _scatter_rows(node, node.emit(relax.op.add(scaled, node.literal(others)), "places"), math.prod(shape), 1)


def _scatter_rows(node: Node, positions: Value, count: int, width: int) -> Value:
    """Returns the data as `count` rows of `width` elements; the updates change the rows at `positions`."""
    name = node.attribute("reduction", "none")
    node.require(name in _REDUCTIONS, f"has the unknown reduction {shortened(name)}")
    node.require(node.dtype(0) == node.dtype(2), f"cannot write {node.dtype(2)} into {node.dtype(0)}")
    if _REDUCTIONS[name] == scattering.REPLACE and isinstance(positions, np.ndarray):
        return _replaced(node, positions.reshape(-1), count, width)
    if _REDUCTIONS[name] != scattering.REPLACE and node.dtype(0) == "bool":
        node.unsupported(f"has the reduction {name} of bool, which cannot be compiled", node.name(0))
    at = node.literal(positions.astype(np.int64)) if isinstance(positions, np.ndarray) else positions
    writes = math.prod(shape_of(at))
    operands = [
        node.emit(relax.op.reshape(x, shape), part)
        for x, shape, part in (
            (node.expr(0), (count, width), "rows"),
            (at, (writes,), "places"),
            (node.expr(2), (writes, width), "updates"),
        )
    ]
    written = node.emit(ops.scatter_rows(*operands, reduction=_REDUCTIONS[name]), "written")
    result = node.emit(relax.op.reshape(written, node.shape(0)))
    return node.with_input_type(result) if _REDUCTIONS[name] == scattering.REPLACE else result


def _replaced(node: Node, positions: Array, count: int, width: int) -> Value:
    if count > _MOST_WRITES:
        node.unsupported(f"writes into {count} rows; the limit is {_MOST_WRITES}")
    sources = np.arange(count)
    sources[positions] = count + np.arange(
        len(positions)
    )  # if several updates change the same row, the last update counts
    shape, known = node.shape(0), [node.known_value(0), node.known_value(2)]
    if known[0] is not None and known[1] is not None and known[0].size <= 1 << 16:
        rows = np.concatenate([known[0].reshape(count, width), known[1].reshape(len(positions), width)])
        return node.folded(rows[sources].reshape(shape))
    old = node.emit(relax.op.reshape(node.expr(0), (count, width)), "rows")
    if not len(positions):
        return node.with_input_type(node.emit(relax.op.reshape(old, shape)))
    new = node.emit(relax.op.reshape(node.expr(2), (len(positions), width)), "updates")
    both = node.emit(relax.op.concat([old, new], 0), "both")
    taken = node.emit(relax.op.take(both, node.literal(sources.astype(np.int64)), 0, mode="clip"), "taken")
    return node.with_input_type(node.emit(relax.op.reshape(taken, shape)))


def tensor_scatter(node: Node) -> Value:
    """Inputs: past_cache, update, write_indices `[B]` int64. Replaces adjacent parts of the cache along one axis,
    beginning at the index of each sample, or at 0. In the mode `circular`, parts beyond the end continue at the
    beginning; otherwise, they replace the last part.
    """
    shape, given = node.shape(0), node.shape(1)
    axis, mode = node.axis(node.attribute("axis", -2), len(shape)), node.attribute("mode", "linear")
    fits = len(given) == len(shape) and all(
        a == b or (index == axis and a <= b) for index, (a, b) in enumerate(zip(given, shape, strict=True))
    )
    node.require(fits and axis > 0, f"has an update {list(given)}, which does not fit the cache {list(shape)}")
    node.require(mode in ("linear", "circular"), f"has the unknown mode {shortened(mode)}")
    node.require(node.dtype(0) == node.dtype(1), f"cannot write {node.dtype(1)} into {node.dtype(0)}")
    batch, size, count = shape[0], shape[axis], given[axis]
    steps = node.literal(np.arange(count, dtype=np.int64).reshape(1, count))
    if node.has(2):
        node.require(node.shape(2) == (batch,) and node.dtype(2) == "int64", "has indices that are not [B] int64")
        starts = node.emit(relax.op.reshape(node.expr(2), (batch, 1)), "starts")
        at = node.emit(relax.op.add(starts, steps), "at")
    else:
        at = node.emit(relax.op.broadcast_to(steps, (batch, count)), "at")
    length = node.literal(np.array(size, np.int64))
    if mode == "circular":
        at = node.emit(relax.op.floor_mod(at, length), "around")
    at = indices_of(node, at, None, [size])
    own = node.literal((np.arange(batch, dtype=np.int64) * size).reshape(batch, 1))
    places = node.emit(relax.op.reshape(node.emit(relax.op.add(at, own), "places"), (batch * count,)), "places")
    order = [0, axis, *(each for each in range(1, len(shape)) if each != axis)]
    width = math.prod(shape) // (batch * size)
    rows = [
        node.emit(relax.op.reshape(node.emit(relax.op.permute_dims(x, order), "moved"), (batch * each, width)), "rows")
        for x, each in ((node.expr(0), size), (node.expr(1), count))
    ]
    written = node.emit(ops.scatter_rows(rows[0], places, rows[1]), "written")
    moved = node.emit(relax.op.reshape(written, [shape[each] for each in order]), "cells")
    back = [order.index(each) for each in range(len(shape))]
    return node.with_input_type(node.emit(relax.op.permute_dims(moved, back)))


SCATTERING: dict[str, tuple[Convert, tuple[int, int]]] = {
    "Scatter": (scatter_elements, (3, 3)),
    "ScatterElements": (scatter_elements, (3, 3)),
    "ScatterND": (scatter_nd, (3, 3)),
    "TensorScatter": (tensor_scatter, (2, 3)),
}
