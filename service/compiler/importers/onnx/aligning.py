"""Aligns the second operand of arithmetic in operator sets 1 to 6, whose dimensions an attribute places.

Later operator sets broadcast as NumPy does. In the first sets, the attribute `axis` is the first axis of A that
corresponds to an axis of B, and the slopes of PRelu belong to the channels. Source: onnx/docs/Changelog.md.
"""

from __future__ import annotations

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node

_BROADCASTS_SINCE = 7
_ARITHMETIC = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"})
_CHANNELS = 1


def aligned(node: Node) -> Node:
    """Returns the operator with the second operand that later operator sets would need. Other operators are returned
    unchanged.
    """
    operator = node.operator
    if node.state.model.opset >= _BROADCASTS_SINCE or node.input_count < 2 or not node.has(1):
        return node
    if operator.op_type == "PRelu":
        axis = _CHANNELS
    elif operator.op_type in _ARITHMETIC and node.attribute("broadcast", 0) and "axis" in operator.attributes:
        axis = node.axis(node.attribute("axis", 0), len(node.shape(0)))
    else:
        return node
    shape, behind = node.shape(1), len(node.shape(0)) - axis - len(node.shape(1))
    if not shape or behind <= 0:
        return node
    known = node.known_value(1)
    value = node.expr(1) if known is None else known
    return derived(node, {1: movement.reshape(node, value, (*shape, *(1,) * behind), "aligned")})
