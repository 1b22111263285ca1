"""Checks that a model's operators and tensors form a graph that can be computed in order.

Every model that ONNX Runtime loads is accepted. If two outputs have the same name, they are one tensor that is returned
twice. An output may also be an input or a constant.
"""

from __future__ import annotations

from typing import NoReturn

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported

_MAX_OPERATORS = 50_000


def check_graph(model: Model) -> None:
    """Checks that every tensor is an input, a constant or the output of one operator, and is defined before it is read.

    Requires: the operators are sorted (`order.in_order`).

    Raises:
        MalformedModel: a tensor violates this, or the model's inputs or outputs are invalid.
        Unsupported: the model has no inputs or outputs, or too many operators.
    """
    if len(model.operators) > _MAX_OPERATORS:
        raise Unsupported(f"the model has {len(model.operators)} operators; the limit is {_MAX_OPERATORS}")
    _check_ends(model)
    known = {*model.constants, *(end.name for end in model.inputs)}
    for operator in model.operators:
        _check_operator(operator, known)
    for end in model.outputs:
        if end.name not in known:
            _fail(end.name, "is an output of the model, but no operator computes it")


def _check_ends(model: Model) -> None:
    names = [end.name for end in model.inputs]
    if len(set(names)) != len(names):
        raise MalformedModel("two inputs of the model have the same name")
    if "" in names or "" in (end.name for end in model.outputs):
        raise MalformedModel("an input or an output of the model has no name")
    if not model.inputs:
        raise Unsupported(
            "the model has no inputs, so that it always has the same result",
            hint="export it with its inputs, or use its result as a constant",
        )
    if not model.outputs:
        raise Unsupported("the model has no outputs", hint="export it with its outputs")


def _check_operator(operator: Operator, known: set[str]) -> None:
    """Checks an operator, and adds its outputs to `known`."""
    for name in operator.inputs:
        if name and name not in known:
            _fail(name, "is read, but it is not an input, a constant or an operator's output", operator)
    if not any(operator.outputs):
        raise MalformedModel(f"{operator.label} has no outputs", op=operator.label)
    for name in operator.outputs:
        if name and name in known:
            _fail(name, "is computed twice", operator)
        known |= {name} - {""}


def _fail(name: str, what: str, operator: Operator | None = None) -> NoReturn:
    op = operator.label if operator else None
    raise MalformedModel(f"the tensor {shortened(name)} {what}", op=op, tensor=shortened(name))
