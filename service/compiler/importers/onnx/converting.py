"""Converts operators one after another, by the rules in `operators`."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.onnx.aligning import aligned
from service.compiler.importers.onnx.folding import folded, folds
from service.compiler.importers.onnx.model import MAKES_ITEMS, READS_ITEMS, Items
from service.compiler.importers.onnx.node import Node, State, TooLargeToFold, Value
from service.compiler.importers.onnx.operators import RULES
from service.compiler.importers.onnx.operators.doubles import DOUBLES, is_double
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.graph import shape_of


def converted(state: State, operator: Operator) -> dict[str, Value]:
    """Returns the results of an operator, by name. The operator's rule emits calls with `state.builder`.

    Requires: `support.check_operator` accepts the operator.

    Raises:
        MalformedModel: the operator's definition is invalid.
        Unsupported: the operator cannot be compiled.
    """
    node = Node(state, operator)
    try:
        made = folded(node, _convert) if folds(node) or _reads_nothing(node) else _convert(node)
    except TooLargeToFold:
        made = _unfolded(state, operator)
    if not isinstance(made, tuple):
        return {node.output: _known_if_empty(made)}
    # A file may omit outputs that nothing reads. A rule returns None for an output that cannot be compiled.
    node.require(len(operator.outputs) <= len(made), f"has {len(operator.outputs)} outputs, more than {len(made)}")
    named = zip(operator.outputs, made, strict=False)
    return {name: _known_if_empty(value) for name, value in named if name and value is not None}


def _reads_nothing(node: Node) -> bool:
    """Returns true if all operands are known, and one of them has no elements. Such an operator is computed at once, so
    that no compiled operator has such an operand.
    """
    if node.operator.op_type in READS_ITEMS | MAKES_ITEMS:
        return False
    given = [node.value(index) for index in _given(node)]
    known = [value for value in given if isinstance(value, np.ndarray)]
    return len(node.operator.outputs) == 1 and len(known) == len(given) and any(value.size == 0 for value in known)


def _known_if_empty(value: Value) -> Value:
    """Returns a tensor without elements as an array, so that operators on it are computed while importing."""
    if isinstance(value, np.ndarray | Items) or 0 not in shape_of(value):
        return value
    return np.zeros(shape_of(value), str(value.ty.dtype))


def _convert(node: Node) -> Value | tuple[Value, ...]:
    node = aligned(node)
    computes_doubles = is_double(node) and not all(isinstance(node.value(at), np.ndarray) for at in _given(node))
    made = DOUBLES[node.operator.op_type](node) if computes_doubles else RULES[node.operator.op_type].convert(node)
    return made if isinstance(made, tuple) else node.clipped(made)


def _given(node: Node) -> list[int]:
    return [index for index in range(node.input_count) if node.has(index)]


def _unfolded(state: State, operator: Operator) -> Value | tuple[Value, ...]:
    try:
        return _convert(Node(state, operator, folds_large=False))
    except TooLargeToFold as error:
        raise error.refusal from None
