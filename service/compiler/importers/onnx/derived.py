"""Operators that a rule derives from the operator that it converts, so that it can use another operator's rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.compiler.importers.onnx.node import Node, Value


def derived(
    node: Node,
    values: Mapping[int, Value],
    attributes: Mapping[str, Any] | None = None,
    *,
    op_type: str | None = None,
    count: int | None = None,
) -> Node:
    """Returns an operator with other inputs or attributes, and the same outputs.

    Args:
        values: index of an input -> its value.
        attributes: the attributes; None for those of `node`.
        op_type: the type; None for that of `node`.
        count: the number of inputs; None for as many as `node` and `values` have.
    """
    operator, state = node.operator, node.state
    inputs = list(operator.inputs)
    inputs += [""] * (max([*values, -1]) + 1 - len(inputs))
    for index, value in values.items():
        name = f"{node.output} input {index}"
        while name in state.values:
            name += "'"
        state.values[name] = value
        if inputs[index] in state.types:
            state.types[name] = state.types[inputs[index]]
        if inputs[index] in state.storages:
            state.storages[name] = state.storages[inputs[index]]
        inputs[index] = name
    changed = replace(
        operator,
        op_type=op_type or operator.op_type,
        inputs=tuple(inputs[:count]),
        attributes=operator.attributes if attributes is None else dict(attributes),
    )
    return Node(state, changed)
