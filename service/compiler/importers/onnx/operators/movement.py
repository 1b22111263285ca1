"""Operators that move elements without changing them. They also work on stored values, and on values that are known
while importing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.node import Node, Value

_TRUTHS_SINCE = 10  # since this operator set, the mask of Dropout is bool


def move_elements(node: Node, function: Callable[..., Value], *arguments: Any) -> Value:
    """Applies a function of `builder.movement` to the first input. The result has the input's type."""
    return node.with_input_type(function(node, node.operand(), *arguments))


def reshape(node: Node) -> Value:
    """Inputs: data, shape. One size may be -1. A size of 0 means the input's size unless `allowzero` is set."""
    shape, target = node.shape(0), list(node.integers(1))
    if not node.attribute("allowzero", 0):
        node.require(
            all(size != 0 or axis < len(shape) for axis, size in enumerate(target)),
            f"has the shape {target}, whose 0 has no size to keep",
        )
        target = [shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    return move_elements(node, movement.reshape, target)


def flatten(node: Node) -> Value:
    shape = node.shape(0)
    first = node.attribute("axis", 1)
    first = len(shape) if first == len(shape) else node.axis(first, len(shape))
    return move_elements(node, movement.reshape, [math.prod(shape[:first]), math.prod(shape[first:])])


def squeeze(node: Node) -> Value:
    """Removes axes of length 1; by default, all of them. Up to operator set 12, the axes are an attribute; later, they
    are an input.
    """
    return move_elements(node, movement.squeeze, node.named_axes())


def unsqueeze(node: Node) -> Value:
    """Adds axes of length 1. The axes are given as for `squeeze`, and are numbered as in the output."""
    node.require(node.has(1) or "axes" in node.operator.attributes, "has no axes")
    return move_elements(node, movement.unsqueeze, node.named_axes())


def transpose(node: Node) -> Value:
    return move_elements(node, movement.transpose, node.attribute("perm", tuple(range(len(node.shape(0))))[::-1]))


def identity(node: Node) -> Value:
    known = node.known_value(0)
    node.keep_loose()
    return known if known is not None else node.with_input_type(node.emit(node.expr(0)))


def dropout(node: Node) -> tuple[Value, ...]:
    """Inputs: data, ratio, training_mode. Returns the data, and a mask without effect."""
    if node.has(2) and node.data(2).any():
        node.unsupported("drops elements at random (training_mode)", hint="export the model for inference")
    if not any(node.operator.outputs[1:]):
        return identity(node), None
    has_truths = node.state.model.opset >= _TRUTHS_SINCE  # ONNX Runtime returns zeros in earlier sets
    kept = node.literal(np.ones((), np.bool_) if has_truths else np.zeros((), node.dtype(0)))
    return identity(node), node.emit(relax.op.broadcast_to(kept, node.shape(0)), "mask")
