"""Operators that read or write elements at places that a tensor of indices says, and those that make such indices.

Negative indices count from the end. What lies beyond the ends is an error in ONNX; here it is the end, so that no index
leads out of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.model import Array
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, axis_of
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

_LARGEST_DEPTH = 1 << 20  # of one-hot rows
_MOST_WRITES = 1 << 22


def gather_elements(node: Node) -> Value:
    """data, indices: along one axis, for each index the element at its own place on the others."""
    shape, wanted = node.shape(0), node.shape(1)
    node.require(len(shape) == len(wanted) > 0, f"picks {list(wanted)} of {list(shape)}")
    axis = axis_of(node, len(shape), 0)
    others = [(a, b) for place, (a, b) in enumerate(zip(wanted, shape, strict=True)) if place != axis]
    node.require(all(a <= b for a, b in others), f"picks {list(wanted)} of {list(shape)}")
    known = node.all_known()
    if known is not None and node.is_small(known[1:]):
        cut = known[0][tuple(slice(None) if place == axis else slice(size) for place, size in enumerate(wanted))]
        return node.folded(np.take_along_axis(cut, _inside(node, known[1], shape[axis]), axis))
    data = node.expr(0)
    for place, (a, b) in enumerate(zip(wanted, shape, strict=True)):
        if place != axis and a < b:
            data = node.emit(relax.op.strided_slice(data, [place], [0], [a], [1]), "part")
    indices = _indices(node, node.expr(1), node.known(1), [shape[axis]])
    return node.kept(node.emit(relax.op.gather_elements(data, indices, axis)))


def gather_nd(node: Node) -> Value:
    """data, indices: parts of the data, at the places that the rows of the indices name; behind `batch_dims` axes that
    both share."""
    shape, wanted, shared = node.shape(0), node.shape(1), node.attribute("batch_dims", 0)
    depth = wanted[-1] if wanted else 0
    fits = 0 <= shared < len(wanted) and depth > 0 and shared + depth <= len(shape)
    node.require(fits and shape[:shared] == wanted[:shared], f"picks {list(wanted)} of {list(shape)}")
    named, rest = shape[shared : shared + depth], shape[shared + depth :]
    known = node.all_known()
    if known is not None and known[1].size * math.prod(rest) <= 1 << 16:
        rows = _inside(node, known[1], np.array(named)).reshape(math.prod(shape[:shared]), -1, depth)
        batches = np.arange(rows.shape[0])[:, np.newaxis]
        data = known[0].reshape(rows.shape[0], *named, *rest)
        picked = data[(batches, *(rows[..., place] for place in range(depth)))]
        return node.folded(picked.reshape(*wanted[:-1], *rest))
    indices = _indices(node, node.expr(1), node.known(1), named)
    steps = [math.prod(named[place + 1 :]) for place in range(depth)]
    scaled = node.emit(relax.op.multiply(indices, node.literal(np.array(steps, np.int64))), "steps")
    flat = node.emit(relax.op.sum(scaled, axis=[len(wanted) - 1]), "places")
    if shared:
        starts = np.arange(math.prod(shape[:shared])) * math.prod(named)
        starts = starts.reshape(*shape[:shared], *[1] * (len(wanted) - 1 - shared)).astype(np.int64)
        flat = node.emit(relax.op.add(flat, node.literal(starts)), "places")
    rows_of_data = node.emit(relax.op.reshape(node.expr(0), (math.prod(shape[: shared + depth]), *rest)), "rows")
    return node.kept(node.emit(relax.op.take(rows_of_data, flat, 0, mode="clip")))


def scatter_nd(node: Node) -> Value:
    """data, indices, updates: the data with other values at the places that the rows of the indices name, which have to
    be constant. The last of several for one place stays."""
    shape, indices = node.shape(0), node.data(1)
    depth = indices.shape[-1] if indices.ndim else 0
    node.require(0 < depth <= len(shape), f"writes at {list(indices.shape)} of {list(shape)}")
    rest = shape[depth:]
    node.require(
        node.shape(2) == (*indices.shape[:-1], *rest), f"writes {list(node.shape(2))} at {len(indices)} places"
    )
    rows = _inside(node, indices, np.array(shape[:depth])).reshape(-1, depth)
    places = np.asarray(np.ravel_multi_index(tuple(rows.T), shape[:depth]) if rows.size else (), np.int64)
    return _written(node, places, math.prod(shape[:depth]), rest)


def scatter_elements(node: Node) -> Value:
    """data, indices, updates: as `scatter_nd`, each index along one axis and at its own place on the others."""
    shape, indices = node.shape(0), node.data(1)
    node.require(indices.ndim == len(shape) > 0, f"writes at {list(indices.shape)} of {list(shape)}")
    node.require(node.shape(2) == indices.shape, f"writes {list(node.shape(2))} at {list(indices.shape)}")
    axis = axis_of(node, len(shape), 0)
    fits = all(a <= b for place, (a, b) in enumerate(zip(indices.shape, shape, strict=True)) if place != axis)
    node.require(fits, f"writes at {list(indices.shape)} of {list(shape)}")
    places: Array = np.zeros(indices.shape, np.int64)
    for place, size in enumerate(indices.shape):
        own = np.arange(size).reshape(-1, *[1] * (len(shape) - place - 1))
        at = _inside(node, indices, shape[axis]) if place == axis else own
        places = places + at * math.prod(shape[place + 1 :])
    return _written(node, places.reshape(-1), math.prod(shape), ())


def _written(node: Node, places: Array, count: int, rest: Sequence[int]) -> Value:
    """The data as `count` rows of `rest`, of which those at `places` come from the updates."""
    if node.attribute("reduction", "none") != "none":
        node.unsupported(f"writes by {node.attribute('reduction', 'none')}; without a reduction, it can be compiled")
    if count > _MOST_WRITES:
        node.unsupported(f"writes into {count} rows; the limit is {_MOST_WRITES}")
    node.require(node.dtype(0) == node.dtype(2), f"writes {node.dtype(2)} into {node.dtype(0)}")
    sources = np.arange(count)
    sources[places] = count + np.arange(len(places))
    shape, known = node.shape(0), [node.known(0), node.known(2)]
    if known[0] is not None and known[1] is not None and known[0].size <= 1 << 16:
        rows = np.concatenate([known[0].reshape(count, *rest), known[1].reshape(len(places), *rest)])
        return node.folded(rows[sources].reshape(shape))
    old = node.emit(relax.op.reshape(node.expr(0), (count, *rest)), "rows")
    if not len(places):
        return node.kept(node.emit(relax.op.reshape(old, shape)))
    new = node.emit(relax.op.reshape(node.expr(2), (len(places), *rest)), "updates")
    both = node.emit(relax.op.concat([old, new], 0), "both")
    taken = node.emit(relax.op.take(both, node.literal(sources.astype(np.int64)), 0, mode="clip"), "taken")
    return node.kept(node.emit(relax.op.reshape(taken, shape)))


def one_hot(node: Node) -> Value:
    """indices, depth, values (off and on): a new axis, on at the index and off elsewhere."""
    depth, rank = node.whole(1), len(node.shape(0))
    named = node.attribute("axis", -1)
    node.require(-rank - 1 <= named <= rank, f"adds axis {named} to {rank}")
    node.require(node.shape(2) == (2,), f"has values of {list(node.shape(2))}, not [off, on]")
    if not 0 < depth <= _LARGEST_DEPTH:
        node.unsupported(f"has a depth of {depth}; from 1 to {_LARGEST_DEPTH} can be compiled")
    axis = named % (rank + 1)
    rows = np.arange(depth).reshape(-1, *[1] * (rank - axis))
    known = node.all_known()
    if known is not None and known[0].size * depth <= 1 << 16:
        on = np.expand_dims(known[0] % depth, axis) == rows
        inside = np.expand_dims((known[0] >= -depth) & (known[0] < depth), axis)
        return node.folded(np.where(on & inside, known[2][1], known[2][0]))
    dtype = node.dtype(0)
    if np.dtype(dtype).kind not in "iu":
        node.unsupported(f"has indices of {dtype}", node.name(0))
    shape = list(node.shape(0))
    indices = node.emit(relax.op.reshape(node.expr(0), [*shape[:axis], 1, *shape[axis:]]), "indices")
    hits = [
        node.emit(relax.op.equal(indices, node.literal((rows - back).astype(dtype))), "hit")
        for back in ([0, depth] if np.dtype(dtype).kind == "i" else [0])
    ]
    on = hits[0] if len(hits) == 1 else node.emit(relax.op.logical_or(*hits), "on")
    values = [
        node.emit(relax.op.reshape(relax.op.strided_slice(node.expr(2), [0], [place], [place + 1], [1]), ()), "value")
        for place in (1, 0)
    ]
    return node.emit(relax.op.where(on, *values))


def trilu(node: Node) -> Value:
    """input, k: the elements from the k-th diagonal on, up to there if `upper` is 0; zeros elsewhere."""
    shape, diagonal = node.shape(0), node.whole(1) if node.has(1) else 0
    node.require(len(shape) >= 2, f"has an input of {list(shape)}, not matrices")
    diagonal = max(-shape[-2], min(shape[-1], diagonal))  # beyond, nothing changes
    upper, known = bool(node.attribute("upper", 1)), node.known(0)
    if known is not None and node.is_small([known]):
        return node.folded((np.triu if upper else np.tril)(known, diagonal))
    if node.dtype(0) == "bool":  # TVM has them of numbers
        number = node.emit(relax.op.astype(node.expr(0), "int8"), "numbers")
        cut = node.emit((relax.op.triu if upper else relax.op.tril)(number, diagonal), "cut")
        return node.emit(relax.op.astype(cut, "bool"))
    return node.kept(node.emit((relax.op.triu if upper else relax.op.tril)(node.expr(0), diagonal)))


def cumulative_sum(node: Node) -> Value:
    """x, axis: sums of all up to each element along one axis, in the operand's own type; of those before it
    (`exclusive`), or from the end (`reverse`)."""
    shape, named = node.shape(0), node.whole(1)
    node.require(-len(shape) <= named < len(shape), f"has axis {named} of {len(shape)}")
    axis, size = named % len(shape), shape[named]
    exclusive, reverse = bool(node.attribute("exclusive", 0)), bool(node.attribute("reverse", 0))
    known = node.known(0)
    if known is not None and node.is_small([known]):
        data = np.flip(known, axis) if reverse else known
        sums = np.cumsum(data, axis, data.dtype)
        sums = sums - data if exclusive and data.dtype.kind in "iu" else _before(sums, axis) if exclusive else sums
        return node.folded(np.flip(sums, axis) if reverse else sums)
    if node.dtype(0) not in ("float32", "int32", "int64"):
        node.unsupported(f"adds {node.dtype(0)}", node.name(0))
    x = _turned(node, node.expr(0), axis) if reverse else node.expr(0)
    sums = node.emit(ops.running_sum(x, axis=axis), "sums")
    if exclusive:
        widths = [1 if place == 2 * axis else 0 for place in range(2 * len(shape))]
        moved = node.emit(relax.op.nn.pad(sums, widths), "moved")
        sums = node.emit(relax.op.strided_slice(moved, [axis], [0], [size], [1]), "sums")
    return node.emit(_turned(node, sums, axis) if reverse else sums)


def _before(sums: Array, axis: int) -> Array:
    """Each sum at the place behind it, and zero at the first."""
    widths = [(1, 0) if place == axis else (0, 0) for place in range(sums.ndim)]
    return np.take(np.pad(sums, widths), range(sums.shape[axis]), axis)


def _turned(node: Node, x: relax.Expr, axis: int) -> relax.Expr:
    backwards = np.arange(shape_of(x)[axis], dtype=np.int64)[::-1]
    return node.emit(relax.op.take(x, node.literal(backwards), axis, mode="clip"), "turned")


def top_k(node: Node) -> Value:
    """X, K: the largest or smallest values along one axis, and their int64 indices; of equal ones, the first."""
    shape, count = node.shape(0), node.whole(1)
    node.require(bool(shape), "has a scalar input")
    axis = axis_of(node, len(shape), -1)
    node.require(0 < count <= shape[axis], f"takes {count} of {shape[axis]} elements")
    largest, known = bool(node.attribute("largest", 1)), node.known(0)
    if known is not None and node.is_small([known]):
        keys = known if not largest else -1 - known if known.dtype.kind == "i" else -known.astype(np.float64)
        ordered = np.argsort(keys, axis, kind="stable")
        places = np.take(ordered, range(count), axis)
        return node.folded(np.take_along_axis(known, places, axis)), node.folded(places.astype(np.int64))
    last = len(shape) - 1
    order = [*(place for place in range(len(shape)) if place != axis), axis]
    x = node.expr(0) if axis == last else node.emit(relax.op.permute_dims(node.expr(0), order), "rows")
    places = node.emit(ops.top_places(_keys(node, x, largest=largest), count=count), "places")
    values = node.emit(relax.op.gather_elements(x, places, last), "values")
    back = [int(place) for place in np.argsort(order)]
    results = [values, places]
    if axis != last:
        results = [node.emit(relax.op.permute_dims(each, back), "result") for each in results]
    return node.kept(node.emit(results[0])), node.emit(results[1])


def _keys(node: Node, x: relax.Expr, *, largest: bool) -> relax.Expr:
    """float64 or int64, whose largest are wanted; NaN comes last."""
    dtype = np.dtype(str(x.ty.dtype))
    if dtype == np.float32:
        wide = node.emit(relax.op.astype(x, "float64"), "wide")
        keys = wide if largest else node.emit(relax.op.negative(wide), "negated")
        low = relax.const(np.array(-math.inf), "float64")
        return node.emit(relax.op.where(node.emit(relax.op.isnan(keys), "nan"), low, keys), "keys")
    if dtype.kind not in "iu":
        node.unsupported(f"orders {dtype}", node.name(0))
    keys = x if dtype == np.int64 else node.emit(relax.op.astype(x, "int64"), "wide")
    if largest:
        return keys
    return node.emit(relax.op.subtract(node.literal(np.array(-1, np.int64)), keys), "negated")  # -1 - x: no overflow


def non_max_suppression(node: Node) -> Value:
    """Refuses: the number of boxes is found when the model runs, and every tensor here has one shape."""
    node.unsupported(
        "returns as many boxes as it finds, and every tensor of a build has a fixed shape",
        hint="export the model without it (nms=False), so that boxes and scores are its outputs",
    )


def _indices(node: Node, indices: relax.Expr, known: Array | None, sizes: Sequence[int]) -> relax.Expr:
    """Indices from 0 to less than their sizes, int64: one size, or one for each element of the last axis."""
    size: Array = np.array(sizes if len(sizes) > 1 else sizes[0], np.int64)
    if known is not None:
        return node.literal(_inside(node, known, size).astype(np.int64))
    dtype = str(indices.ty.dtype)
    node.require(dtype in ("int32", "int64"), f"has indices of {dtype}")
    wide = node.emit(relax.op.astype(indices, "int64"), "indices") if dtype == "int32" else indices
    zero = node.literal(np.array(0, np.int64))
    negative = node.emit(relax.op.less(wide, zero), "negative")
    moved = node.emit(relax.op.add(wide, node.literal(size)), "from_end")
    counted = node.emit(relax.op.where(negative, moved, wide), "counted")
    low = node.emit(relax.op.maximum(counted, zero), "low")
    return node.emit(relax.op.minimum(low, node.literal(size - 1)), "inside")


def _inside(node: Node, indices: Array, size: int | Array) -> Array:
    """Constant indices, counted from the front."""
    node.require(indices.dtype.kind == "i", f"has indices of {indices.dtype}")
    node.require(bool(((indices >= -size) & (indices < size)).all()), "has indices out of range")
    return np.asarray(np.where(indices < 0, indices + size, indices))


INDEXING: dict[str, tuple[Convert | Callable[[Node], tuple[Value, ...]], tuple[int, int]]] = {
    "CumSum": (cumulative_sum, (2, 2)),
    "GatherElements": (gather_elements, (2, 2)),
    "GatherND": (gather_nd, (2, 2)),
    "NonMaxSuppression": (non_max_suppression, (2, 5)),
    "OneHot": (one_hot, (3, 3)),
    "Scatter": (scatter_elements, (3, 3)),
    "ScatterElements": (scatter_elements, (3, 3)),
    "ScatterND": (scatter_nd, (3, 3)),
    "TopK": (top_k, (2, 2)),
    "Trilu": (trilu, (1, 2)),
}
