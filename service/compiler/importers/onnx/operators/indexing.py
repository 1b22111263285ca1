"""Operators that read elements at positions given by a tensor of indices, and operators that compute such indices.

Negative indices count from the end. In ONNX, indices beyond the ends are an error; here they are clamped to the ends,
so that nothing outside of a tensor is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

_LARGEST_DEPTH = 1 << 20  # the longest one-hot row


def gather_elements(node: Node) -> Value:
    """Inputs: data, indices. For each index, reads the element whose position along one axis is the index; along the
    other axes, it is the position of the index itself.
    """
    shape, wanted = node.shape(0), node.shape(1)
    node.require(len(shape) == len(wanted) > 0, f"has indices {list(wanted)}, which do not fit the data {list(shape)}")
    axis = node.axis(node.attribute("axis", 0), len(shape))
    others = [(a, b) for index, (a, b) in enumerate(zip(wanted, shape, strict=True)) if index != axis]
    node.require(all(a <= b for a, b in others), f"has indices {list(wanted)}, which do not fit the data {list(shape)}")
    known = node.all_known()
    if known is not None and node.is_small(known[1:]):
        cut = known[0][tuple(slice(None) if index == axis else slice(size) for index, size in enumerate(wanted))]
        return node.folded(np.take_along_axis(cut, inside(node, known[1], shape[axis]), axis))
    data = node.expr(0)
    for index, (a, b) in enumerate(zip(wanted, shape, strict=True)):
        if index != axis and a < b:
            data = node.emit(relax.op.strided_slice(data, [index], [0], [a], [1]), "part")
    indices = indices_of(node, node.expr(1), node.known_value(1), [shape[axis]])
    return node.with_input_type(node.emit(relax.op.gather_elements(data, indices, axis)))


def gather_nd(node: Node) -> Value:
    """Inputs: data, indices. Each row of the indices is a position; reads the part of the data there. Data and indices
    share the first `batch_dims` axes.
    """
    shape, wanted, shared = node.shape(0), node.shape(1), node.attribute("batch_dims", 0)
    depth = wanted[-1] if wanted else 0
    fits = 0 <= shared < len(wanted) and depth > 0 and shared + depth <= len(shape)
    node.require(
        fits and shape[:shared] == wanted[:shared],
        f"has indices {list(wanted)}, which do not fit the data {list(shape)}",
    )
    named, rest = shape[shared : shared + depth], shape[shared + depth :]
    known = node.all_known()
    if known is not None and known[1].size * math.prod(rest) <= 1 << 16:
        rows = inside(node, known[1], np.array(named)).reshape(math.prod(shape[:shared]), -1, depth)
        batches = np.arange(rows.shape[0])[:, np.newaxis]
        data = known[0].reshape(rows.shape[0], *named, *rest)
        picked = data[(batches, *(rows[..., index] for index in range(depth)))]
        return node.folded(picked.reshape(*wanted[:-1], *rest))
    indices = indices_of(node, node.expr(1), node.known_value(1), named)
    steps = [math.prod(named[index + 1 :]) for index in range(depth)]
    scaled = node.emit(relax.op.multiply(indices, node.literal(np.array(steps, np.int64))), "steps")
    flat = node.emit(relax.op.sum(scaled, axis=[len(wanted) - 1]), "places")
    if shared:
        starts = np.arange(math.prod(shape[:shared])) * math.prod(named)
        starts = starts.reshape(*shape[:shared], *[1] * (len(wanted) - 1 - shared)).astype(np.int64)
        flat = node.emit(relax.op.add(flat, node.literal(starts)), "places")
    rows_of_data = node.emit(relax.op.reshape(node.expr(0), (math.prod(shape[: shared + depth]), *rest)), "rows")
    return node.with_input_type(node.emit(relax.op.take(rows_of_data, flat, 0, mode="clip")))


def one_hot(node: Node) -> Value:
    """Inputs: indices, depth, values (off and on). Adds an axis that contains "on" at the index and "off" elsewhere."""
    depth, rank = node.whole(1), len(node.shape(0))
    node.require(node.shape(2) == (2,), f"has values {list(node.shape(2))}, not [off, on]")
    if not 0 < depth <= _LARGEST_DEPTH:
        node.unsupported(f"has a depth of {depth}; only 1 to {_LARGEST_DEPTH} can be compiled")
    axis = node.axis(node.attribute("axis", -1), rank + 1)
    rows = np.arange(depth).reshape(-1, *[1] * (rank - axis))
    known = node.all_known()
    if known is not None and known[0].size * depth <= 1 << 16:
        on = np.expand_dims(known[0] % depth, axis) == rows
        inside = np.expand_dims((known[0] >= -depth) & (known[0] < depth), axis)
        return node.folded(np.where(on & inside, known[2][1], known[2][0]))
    dtype = node.dtype(0)
    if np.dtype(dtype).kind not in "iu":
        node.unsupported(f"has indices of {dtype}, not integers", node.name(0))
    shape = list(node.shape(0))
    indices = node.emit(relax.op.reshape(node.expr(0), [*shape[:axis], 1, *shape[axis:]]), "indices")
    hits = [
        node.emit(relax.op.equal(indices, node.literal((rows - back).astype(dtype))), "hit")
        for back in ([0, depth] if np.dtype(dtype).kind == "i" else [0])
    ]
    on = hits[0] if len(hits) == 1 else node.emit(relax.op.logical_or(*hits), "on")
    values = [
        node.emit(
            relax.op.reshape(relax.op.strided_slice(node.expr(2), [0], [position], [position + 1], [1]), ()), "value"
        )
        for position in (1, 0)
    ]
    return node.emit(relax.op.where(on, *values))


def trilu(node: Node) -> Value:
    """Inputs: input, k. Keeps the elements on and above the k-th diagonal, or those on and below it if `upper` is 0.
    The others become zero.
    """
    shape, diagonal = node.shape(0), node.whole(1) if node.has(1) else 0
    node.require(len(shape) >= 2, f"has an input {list(shape)}, which is not a matrix")
    diagonal = max(-shape[-2], min(shape[-1], diagonal))  # beyond these bounds, nothing changes
    upper, known = bool(node.attribute("upper", 1)), node.known_value(0)
    if known is not None and node.is_small([known]):
        return node.folded((np.triu if upper else np.tril)(known, diagonal))
    if node.dtype(0) == "bool":  # TVM's operators support numbers only
        number = node.emit(relax.op.astype(node.expr(0), "int8"), "numbers")
        cut = node.emit((relax.op.triu if upper else relax.op.tril)(number, diagonal), "cut")
        return node.emit(relax.op.astype(cut, "bool"))
    return node.with_input_type(node.emit((relax.op.triu if upper else relax.op.tril)(node.expr(0), diagonal)))


def cumulative_sum(node: Node) -> Value:
    """Inputs: x, axis. Replaces each element by the sum of all elements up to it along an axis, in the operand's own
    type. With `exclusive`, the element itself is not included; with `reverse`, sums start at the end.
    """
    shape = node.shape(0)
    axis = node.axis(node.whole(1), len(shape))
    size = shape[axis]
    exclusive, reverse = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))
    known = node.known_value(0)
    if known is not None and node.is_small([known]):
        data = np.flip(known, axis) if reverse else known
        sums = np.cumsum(data, axis, data.dtype)
        sums = sums - data if exclusive and data.dtype.kind in "iu" else _before(sums, axis) if exclusive else sums
        return node.folded(np.flip(sums, axis) if reverse else sums)
    if node.dtype(0) not in ("float32", "float64", "int32", "int64"):
        node.unsupported(f"adds {node.dtype(0)}, which cannot be compiled", node.name(0))
    x = _reversed(node, node.expr(0), axis) if reverse else node.expr(0)
    sums = node.emit(ops.running_sum(x, axis=axis), "sums")
    if exclusive:
        widths = [1 if index == 2 * axis else 0 for index in range(2 * len(shape))]
        moved = node.emit(relax.op.nn.pad(sums, widths), "moved")
        sums = node.emit(relax.op.strided_slice(moved, [axis], [0], [size], [1]), "sums")
    return node.emit(_reversed(node, sums, axis) if reverse else sums)


def _before(sums: Array, axis: int) -> Array:
    """Returns the sums shifted by one position. The first is zero."""
    widths = [(1, 0) if index == axis else (0, 0) for index in range(sums.ndim)]
    return np.take(np.pad(sums, widths), range(sums.shape[axis]), axis)


def _reversed(node: Node, x: relax.Expr, axis: int) -> relax.Expr:
    size = shape_of(x)[axis]
    backwards: relax.Expr = movement.take(node, x, axis, size, lambda: np.arange(size)[::-1], "turned")
    return backwards


def top_k(node: Node) -> Value:
    """Inputs: X, K. Returns the K largest or smallest values along one axis, and their int64 indices. Of equal values,
    the first one is preferred.
    """
    shape, count = node.shape(0), node.whole(1)
    node.require(bool(shape), "has a scalar input")
    axis = node.axis(node.attribute("axis", -1), len(shape))
    node.require(0 <= count <= shape[axis], f"selects {count} of {shape[axis]} elements")
    node.require_supported(count > 0, "selects 0 elements, which leaves an empty tensor")
    largest, known = bool(node.attribute("largest", 1)), node.known_value(0)
    if known is not None and node.is_small([known]):
        keys = known if not largest else -1 - known if known.dtype.kind == "i" else -known.astype(np.float64)
        ordered = np.argsort(keys, axis, kind="stable")
        positions = np.take(ordered, range(count), axis)
        return node.folded(np.take_along_axis(known, positions, axis)), node.folded(positions.astype(np.int64))
    last = len(shape) - 1
    order = [*(position for position in range(len(shape)) if position != axis), axis]
    x = node.expr(0) if axis == last else node.emit(relax.op.permute_dims(node.expr(0), order), "rows")
    positions = node.emit(ops.top_places(_keys(node, x, largest=largest), count=count), "places")
    values = node.emit(relax.op.gather_elements(x, positions, last), "values")
    back = [int(position) for position in np.argsort(order)]
    results = [values, positions]
    if axis != last:
        results = [node.emit(relax.op.permute_dims(each, back), "result") for each in results]
    return node.with_input_type(node.emit(results[0])), node.emit(results[1])


def _keys(node: Node, x: relax.Expr, *, largest: bool) -> relax.Expr:
    """Returns float64 or int64 keys. The elements with the largest keys are the result; NaN has the smallest key."""
    dtype = np.dtype(str(x.ty.dtype))
    if dtype == np.float32:
        wide = node.emit(relax.op.astype(x, "float64"), "wide")
        keys = wide if largest else node.emit(relax.op.negative(wide), "negated")
        low = relax.const(np.array(-math.inf), "float64")
        return node.emit(relax.op.where(node.emit(relax.op.isnan(keys), "nan"), low, keys), "keys")
    if dtype.kind not in "iu":
        node.unsupported(f"orders {dtype}, which cannot be compiled", node.name(0))
    keys = x if dtype == np.int64 else node.emit(relax.op.astype(x, "int64"), "wide")
    if largest:
        return keys
    return node.emit(relax.op.subtract(node.literal(np.array(-1, np.int64)), keys), "negated")  # -1 - x cannot overflow


def indices_of(node: Node, indices: relax.Expr, known: Array | None, sizes: Sequence[int]) -> relax.Expr:
    """Returns int64 indices, clamped to 0 … size - 1. There is one size for all, or one for each element of the last
    axis.
    """
    size: Array = np.array(sizes if len(sizes) > 1 else sizes[0], np.int64)
    if known is not None:
        return node.literal(inside(node, known, size).astype(np.int64))
    dtype = str(indices.ty.dtype)
    node.require(dtype in ("int32", "int64"), f"has indices of {dtype}, not int32 or int64")
    wide = node.emit(relax.op.astype(indices, "int64"), "indices") if dtype == "int32" else indices
    zero = node.literal(np.array(0, np.int64))
    negative = node.emit(relax.op.less(wide, zero), "negative")
    moved = node.emit(relax.op.add(wide, node.literal(size)), "from_end")
    counted = node.emit(relax.op.where(negative, moved, wide), "counted")
    low = node.emit(relax.op.maximum(counted, zero), "low")
    return node.emit(relax.op.minimum(low, node.literal(size - 1)), "inside")


def inside(node: Node, indices: Array, size: int | Array) -> Array:
    """Returns constant indices. Negative ones are converted to positions from the front."""
    node.require(indices.dtype.kind == "i", f"has indices of {indices.dtype}, not integers")
    node.require_supported(
        bool(((indices >= -size) & (indices < size)).all()), "has indices beyond the ends of its data"
    )
    return np.asarray(np.where(indices < 0, indices + size, indices))


INDEXING: dict[str, tuple[Convert | Callable[[Node], tuple[Value, ...]], tuple[int, int]]] = {
    "CumSum": (cumulative_sum, (2, 2)),
    "GatherElements": (gather_elements, (2, 2)),
    "GatherND": (gather_nd, (2, 2)),
    "OneHot": (one_hot, (3, 3)),
    "TopK": (top_k, (2, 2)),
    "Trilu": (trilu, (1, 2)),
}
