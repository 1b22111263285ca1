"""Operators that select, repeat and rearrange elements, which may be stored values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.movement import move_elements, part_of
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.core.models.arrays import Array

_MOST_INDICES = 1 << 24


def _take(node: Node, x: Value, axis: int, positions: Array) -> Value:
    return move_elements(node, x, movement.take, axis, len(positions), partial(np.asarray, positions))


def _flip(node: Node, input: Any, dims: Any) -> Value:
    x = node.tensor(input)
    for axis in node.axes(node.sizes(dims), len(x.shape)):
        x = part_of(node, x, axis, range(x.shape[axis])[::-1])
    return x


def _index_select(node: Node, input: Any, dim: Any, index: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    if isinstance(index, Tensor):
        return _take(node, x, axis, _inside(node, index.data, x.shape[axis]).reshape(-1))
    places = _places(node, index)
    return Value(node.emit(relax.op.take(x.expr, places, axis, mode="clip")), x.quantized, x.exact_scale)


def _inside(node: Node, places: Array, size: int) -> Array:
    """Returns constant positions counted from the front."""
    fits = places.dtype.kind in "iu" and bool(((places >= -size) & (places < size)).all())
    node.require(fits, f"has indices that are not integers below {size}")
    return np.asarray(places.astype(np.int64) % size)


def _places(node: Node, index: Any) -> relax.Expr:
    places = node.tensor(index)
    node.require_supported(places.dtype in ("int32", "int64"), f"has indices of {places.dtype}, not int32 or int64")
    return places.expr


def _index(node: Node, input: Any, indices: Any) -> Value:
    """Converts `x[:, indices]`: one tensor of positions, along one axis; or several constant ones on adjacent axes."""
    x, given = node.tensor(input), list(node.parts(indices))
    named = [axis for axis, each in enumerate(given) if each is not None]
    node.require(bool(named) and len(given) <= len(x.shape), "has no indices, or more than its operand has axes")
    masks = any(node.tensor(given[axis]).dtype == "bool" for axis in named)
    node.require_supported(not masks, "selects by a mask, so that the number of results is not known")
    first = named[0]
    if len(named) > 1:
        constant = all(isinstance(given[axis], Tensor) for axis in named)
        adjacent = named == list(range(first, first + len(named)))
        node.require_supported(constant and adjacent, "has indices along several axes that are computed or apart")
        sizes = x.shape[first : first + len(named)]
        places = [_inside(node, given[axis].data, x.shape[axis]) for axis in named]
        index: Any = Tensor(np.ravel_multi_index(np.broadcast_arrays(*places), sizes))
        shape = [*x.shape[:first], math.prod(sizes), *x.shape[first + len(named) :]]
        x = move_elements(node, x, movement.reshape, shape)
    else:
        index = given[first]
    if not isinstance(index, Tensor):
        return _index_select(node, x, first, index)
    positions = _inside(node, index.data, x.shape[first])
    node.require_supported(positions.size <= _MOST_INDICES, f"has {positions.size} indices, which is too many")
    taken = _take(node, x, first, positions.reshape(-1))
    if positions.ndim == 1:
        return taken
    return move_elements(node, taken, movement.reshape, [*x.shape[:first], *positions.shape, *x.shape[first + 1 :]])


def _narrow(node: Node, input: Any, dim: Any, start: Any, length: Any) -> Value:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    first = node.integer(start)
    first += x.shape[axis] if first < 0 else 0
    return part_of(node, x, axis, range(x.shape[axis])[first : first + node.integer(length, 0)])


def _tile(node: Node, input: Any, dims: Any) -> Value:
    x, times = node.tensor(input), node.sizes(dims)
    missing = len(x.shape) - len(times)
    return move_elements(node, x, movement.tile, [*[1] * missing, *times])


def _repeat_interleave(node: Node, input: Any, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Value:
    """Repeats each element of an axis one after the other."""
    x, times = node.tensor(input), node.integer(repeats, 1)
    if dim is None:
        x, dim = move_elements(node, x, movement.reshape, [math.prod(x.shape)]), 0
    axis = node.axis(dim, len(x.shape))
    count = x.shape[axis] * times
    node.require_supported(count <= _MOST_INDICES, f"repeats its operand {times} times, which is too much")
    return _take(node, x, axis, np.arange(count) // times)


def _movedim(node: Node, input: Any, source: Any, destination: Any) -> Value:
    x = node.tensor(input)
    rank = len(x.shape)
    froms, tos = (node.axes(node.sizes(each), rank) for each in (source, destination))
    node.require(len(froms) == len(tos) == len({*froms}) == len({*tos}), "moves axes that do not fit together")
    order = [axis for axis in range(rank) if axis not in froms]
    for to, axis in sorted(zip(tos, froms, strict=True)):
        order.insert(to, axis)
    return move_elements(node, x, movement.transpose, order)


def _t(node: Node, input: Any) -> Value:
    x = node.tensor(input)
    node.require(len(x.shape) <= 2, f"has an input of shape {list(x.shape)}, which is not a matrix")
    return move_elements(node, x, movement.transpose, list(range(len(x.shape)))[::-1])


def _last_two(node: Node, input: Any) -> Value:
    x = node.tensor(input)
    rank = len(x.shape)
    return move_elements(node, x, movement.transpose, [*range(rank - 2), rank - 1, rank - 2])


def _as(function: Callable[..., Any]) -> Callable[..., Value]:
    """Returns the rule of an operator that takes its shape from another tensor."""

    def convert(node: Node, input: Any, other: Any) -> Value:
        return move_elements(node, node.tensor(input), function, list(node.tensor(other).shape))

    return convert


def _tensor_split(node: Node, input: Any, indices_or_sections: Any, dim: Any = 0) -> list[Value]:
    x = node.tensor(input)
    axis = node.axis(dim, len(x.shape))
    size = x.shape[axis]
    if isinstance(indices_or_sections, list | tuple):
        ends = [*node.sizes(indices_or_sections), size]
    else:
        count = node.integer(indices_or_sections, 1)
        ends = list(accumulate(size // count + (index < size % count) for index in range(count)))
    return [part_of(node, x, axis, range(size)[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


RULES = {
    "aten::expand_as": _as(movement.broadcast),
    "aten::flip": _flip,
    "aten::index": _index,
    "aten::index_select": _index_select,
    "aten::mT": _last_two,
    "aten::movedim": _movedim,
    "aten::moveaxis": _movedim,
    "aten::narrow": _narrow,
    "aten::numpy_T": _t,
    "aten::repeat_interleave": _repeat_interleave,
    "aten::reshape_as": _as(movement.reshape),
    "aten::t": _t,
    "aten::tensor_split": _tensor_split,
    "aten::tile": _tile,
    "aten::view_as": _as(movement.reshape),
}
