"""Operators that move elements without changing them. They also work on stored values, and on values that are known
while importing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value

_TRUTHS_SINCE = 10  # since this operator set, the mask of Dropout is bool


def reshape(node: Node) -> Value:
    """Inputs: data, shape. One size may be -1. A size of 0 means the input's size unless `allowzero` is set."""
    shape, target = node.shape(0), list(node.integers(1))
    if not node.attribute("allowzero", 0):
        node.require(
            all(size != 0 or axis < len(shape) for axis, size in enumerate(target)),
            f"has the shape {target}, whose 0 has no size to keep",
        )
        target = [shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    return _reshaped(node, target)


def flatten(node: Node) -> Value:
    shape, axis = node.shape(0), node.attribute("axis", 1)
    node.require(-len(shape) <= axis <= len(shape), f"has axis {axis}, but its input has {len(shape)} dimensions")
    first = axis % len(shape) if axis < 0 else axis
    return _reshaped(node, [math.prod(shape[:first]), math.prod(shape[first:])])


def squeeze(node: Node) -> Value:
    """Removes axes of length 1; by default, all of them. Up to operator set 12, the axes are an attribute; later, they
    are an input.
    """
    shape = node.shape(0)
    named = _axes(node, len(shape))
    dropped = set(named) if named else {axis for axis, size in enumerate(shape) if size == 1}
    node.require(all(shape[axis] == 1 for axis in dropped), f"cannot drop the axes {sorted(dropped)} of {list(shape)}")
    return _reshaped(node, [size for axis, size in enumerate(shape) if axis not in dropped])


def unsqueeze(node: Node) -> Value:
    """Adds axes of length 1. The axes are given as for `squeeze`, and are numbered as in the output."""
    shape = list(node.shape(0))
    count = node.data(1).size if node.has(1) else len(node.attribute("axes", ()))
    named = _axes(node, len(shape) + count)
    if named is None:
        node.malformed("has no axes")
    for axis in sorted(named):
        shape.insert(axis, 1)
    return _reshaped(node, shape)


def transpose(node: Node) -> Value:
    rank = len(node.shape(0))
    order = node.attribute("perm", tuple(range(rank))[::-1])
    node.require(sorted(order) == list(range(rank)), f"has the invalid perm {list(order)[:8]} for {rank} axes")
    known = node.known_value(0)
    if known is not None:
        return known.transpose(order)  # a view, which may have any size
    return node.with_input_type(node.emit(relax.op.permute_dims(node.expr(0), list(order))))


def identity(node: Node) -> Value:
    known = node.known_value(0)
    node.keep_loose()
    return known if known is not None else node.with_input_type(node.emit(node.expr(0)))


def dropout(node: Node) -> tuple[Value, ...]:
    """Inputs: data, ratio, training_mode. Returns the data, and a mask that is true everywhere."""
    if node.has(2) and node.data(2).any():
        node.unsupported("drops elements at random (training_mode)", hint="export the model for inference")
    if not any(node.operator.outputs[1:]) or node.state.model.opset < _TRUTHS_SINCE:
        return identity(node), None
    kept = node.literal(np.ones((), np.bool_))
    return identity(node), node.emit(relax.op.broadcast_to(kept, node.shape(0)), "mask")


def _axes(node: Node, rank: int) -> list[int] | None:
    if node.has(1):
        named = node.integers(1)
    elif "axes" in node.operator.attributes:
        named = node.attribute("axes", ())
    else:
        return None
    node.require(
        all(-rank <= axis < rank for axis in named), f"names the axes {list(named)[:8]}, but its input has {rank}"
    )
    resolved = [axis % rank for axis in named]
    node.require(len(set(resolved)) == len(resolved), "names an axis twice")
    return resolved


def _reshaped(node: Node, target: Sequence[int]) -> Value:
    total = math.prod(node.shape(0))
    known = math.prod(size for size in target if size != -1)
    node.require(
        list(target).count(-1) <= 1
        and all(size >= -1 for size in target)
        and (known == total if -1 not in target else known > 0 and total % known == 0),
        f"cannot reshape {list(node.shape(0))} to {list(target)}",
    )
    shape = [total // known if size == -1 else size for size in target]
    data = node.known_value(0)
    if data is not None:
        if not data.flags.c_contiguous:  # a transposed view, which must be copied
            node.state.constants.charge(data.nbytes, node.output)
        return data.reshape(shape)
    return node.with_input_type(node.emit(relax.op.reshape(node.expr(0), shape)))
