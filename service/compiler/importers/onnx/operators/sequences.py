"""Sequences and optional values. Their lengths and the positions in them must be known while importing, so that they
need no operator at run time.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.model import Items
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert

_MOST_ITEMS = 1 << 12
_LARGEST_FOLDED = 1 << 16


def construct(node: Node) -> Value:
    """Inputs: the tensors of a new sequence."""
    for index in range(node.input_count):
        node.value(index)  # raises an error if the input is a sequence or was not computed
    return Items(tuple(node.operator.inputs))


def empty(_node: Node) -> Value:
    return Items(())


def at(node: Node) -> Value:
    """Inputs: sequence, position."""
    names = _names(node)
    return _tensor(node, names[_position(node, 1, len(names))])


def insert(node: Node) -> Value:
    """Inputs: sequence, tensor, position (by default, the end)."""
    names = list(_names(node))
    node.require_supported(len(names) < _MOST_ITEMS, f"has a sequence of more than {_MOST_ITEMS} tensors")
    where = _position(node, 2, len(names), extra=1) if node.has(2) else len(names)
    node.require(not isinstance(node.value(1), Items), "inserts a sequence into a sequence")
    names.insert(where, node.name(1))
    return Items(tuple(names))


def erase(node: Node) -> Value:
    """Inputs: sequence, position (by default, the last)."""
    names = list(_names(node))
    node.require(bool(names), "removes a tensor from an empty sequence")
    del names[_position(node, 1, len(names)) if node.has(1) else -1]
    return Items(tuple(names))


def length(node: Node) -> Value:
    return np.array(len(_names(node)), np.int64)


def split(node: Node) -> Value:
    """Inputs: tensor, split. Splits a tensor along an axis into parts of the sizes in a list, or of one size, except
    that the last part may be shorter. Without sizes, all parts have the size 1, and lose the axis unless `keepdims` is
    set.
    """
    shape = node.shape(0)
    axis = node.axis(node.attribute("axis", 0), len(shape))
    extent = shape[axis]
    if node.has(1) and node.data(1).ndim == 0:
        size = node.whole(1)
        node.require(size > 0, f"splits into parts of size {size}")
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    else:
        sizes = list(node.integers(1)) if node.has(1) else [1] * extent
    node.require_supported(len(sizes) <= _MOST_ITEMS, f"splits into {len(sizes)} parts; at most {_MOST_ITEMS}")
    movement.split_sizes(node, extent, sizes, len(sizes))
    names, quantized = [], node.state.types.get(node.name(0))
    for number, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        part = movement.cut(node, node.operand(), axis, range(end - size, end))
        if not node.has(1) and not node.attribute("keepdims", 1):
            part = movement.squeeze(node, part, [axis])
        name = f"{node.output}/{number}"
        while name in node.state.values:
            name += "'"
        node.state.values[name] = part
        names.append(name)
        if quantized is not None and quantized.is_per_tensor:
            node.state.types[name] = quantized
    return Items(tuple(names))


def concat(node: Node) -> Value:
    """Input: a sequence. Joins its tensors along an axis, or along a new one."""
    names, named = _names(node), node.attribute("axis", 0)
    node.require(bool(names), "joins the tensors of an empty sequence")
    parts = [node.state.values[name] for name in names]
    if node.attribute("new_axis", 0):
        parts = [movement.unsqueeze(node, part, [named], "item") for part in parts]
    axis = movement.joined_axis(node, [node.extents(part) for part in parts], named)
    if all(isinstance(part, np.ndarray) for part in parts) and sum(part.size for part in parts) < _LARGEST_FOLDED:
        return node.folded(np.concatenate(parts, axis))
    filled = [part for part in parts if 0 not in node.extents(part)] or parts[:1]
    exprs = [node.literal(part) if isinstance(part, np.ndarray) else part for part in filled]
    node.require(len({str(each.ty.dtype) for each in exprs}) == 1, "joins tensors of different types")
    result = node.emit(relax.op.concat(exprs, axis))
    types = {node.state.types.get(name) for name in names}
    only = types.pop() if len(types) == 1 else None
    return result if only is None or not only.is_per_tensor else node.typed(result, only)


def optional(node: Node) -> Value:
    """Input: a tensor or a sequence. Returns an optional value that contains it, or an empty one if there is no
    input.
    """
    if not node.has(0):
        return Items(())
    value = node.value(0)
    return value if isinstance(value, Items) else Items((node.name(0),))


def has_element(node: Node) -> Value:
    """Returns true if a value is present. A tensor is always present."""
    if not node.has(0):
        return np.array(False)
    value = node.value(0)
    return np.array(not isinstance(value, Items) or bool(value.names))


def get_element(node: Node) -> Value:
    value = node.value(0)
    if not isinstance(value, Items) or len(value.names) > 1:
        return value
    node.require(bool(value.names), "reads an empty optional value")
    return _tensor(node, value.names[0])


def _names(node: Node) -> tuple[str, ...]:
    value = node.value(0)
    if not isinstance(value, Items):
        node.malformed("reads a tensor, where it needs a sequence", node.name(0))
    return value.names


def _tensor(node: Node, name: str) -> Value:
    """Returns a tensor of a sequence, and records its type for the output."""
    if name in node.state.types:
        node.state.types[node.output] = node.state.types[name]
    if name in node.state.loose:
        node.state.loose.add(node.output)
    return node.state.values[name]


def _position(node: Node, index: int, count: int, extra: int = 0) -> int:
    """Returns a constant position; negative positions count from the end."""
    position = node.whole(index)
    node.require(-count <= position < count + extra, f"has position {position} in a sequence of {count} tensors")
    return position + count if position < 0 else position


SEQUENCES: dict[str, tuple[Convert, tuple[int, int]]] = {
    "ConcatFromSequence": (concat, (1, 1)),
    "Optional": (optional, (0, 1)),
    "OptionalGetElement": (get_element, (1, 1)),
    "OptionalHasElement": (has_element, (0, 1)),
    "SequenceAt": (at, (2, 2)),
    "SequenceConstruct": (construct, (1, 1 << 12)),
    "SequenceEmpty": (empty, (0, 0)),
    "SequenceErase": (erase, (1, 2)),
    "SequenceInsert": (insert, (2, 3)),
    "SequenceLength": (length, (1, 1)),
    "SplitToSequence": (split, (1, 2)),
}
