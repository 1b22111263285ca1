"""Decides the conditions of a model's `If`s. Exported models contain conditions that are constant, and conditions that
are computed from the input's shape. ONNX Runtime folds the former when it loads a model, and evaluates the latter in
each call.

Conditions depend on shapes, and shapes depend on the operators before them. So this module converts the operators one
after another, as the importer does, but keeps only the branches that were taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.converting import converted
from service.compiler.importers.onnx.file.branches import IF, chosen_branch
from service.compiler.importers.onnx.file.graph import check_graph
from service.compiler.importers.onnx.file.order import in_order
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.onnx.node import Node, State, Value
from service.compiler.importers.onnx.support import check_operator
from service.compiler.importers.qdq import Operator
from service.core.errors import OctetError, Unsupported


def resolved(model: Model, params: Sequence[relax.Var]) -> Model:
    """Returns `model` with every `If` replaced by the operators of the branch that it takes.

    Requires: a graph that `graph.check_graph` accepts. `params` are the graph's inputs.
    Ensures: a graph without `If`s that `check_graph` would accept.

    Raises:
        MalformedModel: an `If` does not have the branch that it takes.
        Unsupported: a condition is computed at run time, or depends on an operator that cannot be compiled.
    """
    if not any(operator.op_type == IF for operator in model.operators):
        return model
    builder = relax.BlockBuilder()
    values: dict[str, Value] = {end.name: param for end, param in zip(model.inputs, params, strict=True)}
    values |= {name: tensor.data for name, tensor in model.constants.items() if tensor.data is not None}
    state = State(model, builder, values)
    with builder.function("main", list(params)):
        with builder.dataflow():
            operators = _resolved(state)
            end = builder.emit_output(relax.const(np.zeros((), np.int32)))
        builder.emit_func_output(end)
    result = replace(state.model, operators=in_order(operators))
    check_graph(result)
    return result


def _resolved(state: State) -> list[Operator]:
    """Returns the operators of `state.model` without `If`s. The constants of the branches are added to its
    constants.
    """
    waiting, passed = deque(state.model.operators), list[Operator]()
    left = sum(operator.op_type == IF for operator in waiting)
    failures: dict[str, OctetError] = {}  # tensor that could not be computed -> the error
    while left:
        operator = waiting.popleft()
        if operator.op_type != IF:
            passed.append(operator)
            convert_if_possible(state, operator, failures)
            continue
        inside, constants = chosen_branch(operator, _condition(state, operator, failures))
        left += sum(each.op_type == IF for each in inside) - 1
        waiting.extendleft(reversed(inside))
        state.model = replace(state.model, constants={**state.model.constants, **constants})
        state.values |= {name: tensor.data for name, tensor in constants.items() if tensor.data is not None}
    return [*passed, *waiting]


def convert_if_possible(state: State, operator: Operator, failures: dict[str, OctetError]) -> None:
    """Converts an operator. If that fails, the error is raised only if a condition depends on the operator, because a
    later pass (`qdq`) may replace the operator.
    """
    failed = next((failures[name] for name in operator.inputs if name in failures), None)
    if failed is None:
        try:
            check_operator(state.model, operator)
            state.values |= converted(state, operator)
            return
        except OctetError as error:
            failed = error
    failures |= dict.fromkeys(filter(None, operator.outputs), failed)


def _condition(state: State, operator: Operator, failures: dict[str, OctetError]) -> bool:
    name = operator.inputs[0] if operator.inputs else ""
    if name in failures:
        raise failures[name]
    node = Node(state, operator)
    known = node.constant_data(0)
    if known is None:
        raise Unsupported(
            f"{operator.label} chooses its branch by {shortened(name)}, which is computed at run time",
            op=operator.label,
            tensor=shortened(name),
            hint="a build has one sequence of operators: export the model with the branch that you need",
        )
    node.require(known.size == 1, f"has a condition of {known.size} elements, not one", name)
    return bool(known.reshape(-1)[0])
