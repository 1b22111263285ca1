"""Decides the conditions of a model's `If`s, which are those that exporters leave behind: constants, or computed of the
input's shape. ONNX Runtime folds the first kind when it loads a model, and takes the second way at each call.

Conditions depend on shapes, and shapes on the operators before them. So the operators are converted one after another,
as the importer does, and what that makes is thrown away; only the branches that were taken are left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.branches import IF, taken
from service.compiler.importers.onnx.converting import converted
from service.compiler.importers.onnx.graph import check_graph
from service.compiler.importers.onnx.model import Model, shortened
from service.compiler.importers.onnx.node import Node, State, Value
from service.compiler.importers.onnx.order import in_order
from service.compiler.importers.onnx.support import check_operator
from service.compiler.importers.qdq import Operator
from service.core.errors import OctetError, Unsupported


def resolved(model: Model, params: Sequence[relax.Var]) -> Model:
    """`model` with the operators of the branch that each `If` takes in its place.

    Requires: a graph that `graph.check_graph` has passed; `params` are its inputs.
    Ensures: one that it would pass, without `If`s.

    Raises:
        MalformedModel: an `If` has no such branch.
        Unsupported: a condition is computed at run time, or of something that cannot be compiled.
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
    """The operators of `state.model` without `If`s. Its constants get those of the branches."""
    waiting, passed = deque(state.model.operators), list[Operator]()
    left = sum(operator.op_type == IF for operator in waiting)
    failures: dict[str, OctetError] = {}  # by the tensors that could not be computed
    while left:
        operator = waiting.popleft()
        if operator.op_type != IF:
            passed.append(operator)
            _convert(state, operator, failures)
            continue
        inside, constants = taken(operator, _condition(state, operator, failures))
        left += sum(each.op_type == IF for each in inside) - 1
        waiting.extendleft(reversed(inside))
        state.model = replace(state.model, constants={**state.model.constants, **constants})
        state.values |= {name: tensor.data for name, tensor in constants.items() if tensor.data is not None}
    return [*passed, *waiting]


def _convert(state: State, operator: Operator, failures: dict[str, OctetError]) -> None:
    """Converts an operator. If that fails, the error is raised only if a condition depends on it: the operator may be
    one that becomes another one later on (`qdq`)."""
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
            f"{operator.label} chooses between its branches by {shortened(name)}, which is computed at run time",
            op=operator.label,
            tensor=shortened(name),
            hint="a build has one sequence of operators: export the model with the branch that you need",
        )
    node.require(known.size == 1, f"has a condition of {known.size} elements, not one", name)
    return bool(known.reshape(-1)[0])
