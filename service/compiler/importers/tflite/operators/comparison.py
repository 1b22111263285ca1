"""Comparisons, and operators on their results (LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT, SELECT, SELECT_V2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def comparison(relation: str) -> Callable[[Node], relax.Expr]:
    """Returns the converter of a comparison: to a relation of `ops.elementwise.RELATIONS` for 8-bit operands, and to
    Relax's relation of the same name for other operands. For 16-bit values, only EQUAL and NOT_EQUAL use the scales;
    the other relations compare values as stored (tflite/kernels/comparisons.cc).
    """
    plain = getattr(relax.op, relation)

    def convert(node: Node) -> relax.Expr:
        lhs, rhs = node.input(0), node.input(1)
        node.require(lhs.dtype == rhs.dtype, f"compares {lhs.dtype} with {rhs.dtype}")
        scaled = lhs.dtype in ("int8", "uint8") or (lhs.dtype == "int16" and relation in ("equal", "not_equal"))
        if scaled and lhs.quantization is not None:
            return node.emit(ops.compare(relation, node.expr(0), node.expr(1), node.in_type(0), node.in_type(1)))
        if lhs.dtype == "bool":
            different = relax.op.logical_xor(node.expr(0), node.expr(1))
            if relation == "not_equal":
                return node.emit(different)
            return node.emit(relax.op.logical_not(node.emit(different, "different")))
        if relation == "not_equal":  # Relax's own would be false for NaN
            return node.emit(relax.op.logical_not(node.emit(relax.op.equal(node.expr(0), node.expr(1)), "equal")))
        return node.emit(plain(node.expr(0), node.expr(1)))

    return convert


def logical_and(node: Node) -> relax.Expr:
    """Converts LOGICAL_AND. If one operand is constant and false, the result is constant, so that a loop whose
    condition it is ends.
    """
    shape = np.broadcast_shapes(node.input(0).shape, node.input(1).shape)
    known = [node.data_if_constant(index) for index in range(2)]
    if any(each is not None and not each.any() for each in known):
        return node.emit(relax.op.broadcast_to(relax.const(False), shape))
    return node.emit(relax.op.logical_and(node.expr(0), node.expr(1)))


def select(node: Node) -> relax.Expr:
    """Converts SELECT. A condition with one dimension selects whole rows (`RankOneSelect` in
    tflite/kernels/internal/reference/select.h). Any other condition must have the operands' shape.
    """
    condition, first = node.input(0).shape, node.input(1).shape
    node.require(
        first == node.input(2).shape, f"selects from the different shapes {list(first)} and {list(node.input(2).shape)}"
    )
    if condition == first:
        return _where(node, node.expr(0))
    rows = len(condition) <= 1 and (condition or (1,)) == first[:1]
    node.require(rows, f"has a condition of shape {list(condition)} for operands of shape {list(first)}")
    column = [*first[:1], *(1 for _ in first[1:])]
    return _where(node, node.emit(relax.op.reshape(node.expr(0), column), "condition"))


def select_v2(node: Node) -> relax.Expr:
    """Converts SELECT_V2, which broadcasts all three operands (`Eval` in tflite/kernels/select.cc)."""
    return _where(node, node.expr(0))


def _where(node: Node, condition: relax.Expr) -> relax.Expr:
    node.require(node.input(0).dtype == "bool", f"has a condition of {node.input(0).dtype}, not bool", node.input(0))
    node.require(node.input(1).dtype == node.input(2).dtype, "selects from different types")
    if node.is_quantized:
        node.require_one_type(first=1)
    return node.emit(relax.op.where(condition, node.expr(1), node.expr(2)))
