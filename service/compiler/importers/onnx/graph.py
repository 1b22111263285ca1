"""Checks that a model's operators and tensors make a graph that can be computed from top to bottom."""

from __future__ import annotations

from typing import NoReturn

from service.compiler.importers.onnx.model import Model, shortened
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported

_MAX_OPERATORS = 50_000


def check_graph(model: Model) -> None:
    """Passes if every tensor is given or computed once, before it is read.

    Raises:
        MalformedModel: it is not so.
        Unsupported: it computes nothing.
    """
    if not model.operators:
        raise Unsupported("the model has no operators")
    if len(model.operators) > _MAX_OPERATORS:
        raise Unsupported(f"the model has {len(model.operators)} operators; the limit is {_MAX_OPERATORS}")
    for ends, what in ((model.inputs, "input"), (model.outputs, "output")):
        if not ends:
            raise MalformedModel(f"the model has no {what}s")
        names = [end.name for end in ends]
        if "" in names or len(set(names)) != len(names):
            raise MalformedModel(f"the names of the model's {what}s are not different")
    known = {*model.constants, *(end.name for end in model.inputs)}
    for operator in model.operators:
        _check_operator(operator, known)
    computed = {name for operator in model.operators for name in operator.outputs}
    for end in model.outputs:
        if end.name not in known:
            _fail(end.name, "is an output of the model, but no operator computes it")
        if end.name not in computed:
            raise Unsupported(
                f"the output {shortened(end.name)} is not computed, but an input or a constant",
                tensor=shortened(end.name),
            )


def _check_operator(operator: Operator, known: set[str]) -> None:
    """As `known` grows by what it computes: ONNX demands that operators be sorted, so no cycle gets by."""
    for name in operator.inputs:
        if name and name not in known:
            _fail(name, "is read before any operator computes it", operator)
    if not any(operator.outputs):
        raise MalformedModel(f"{operator.label} has no outputs", op=operator.label)
    for name in operator.outputs:
        if name and name in known:
            _fail(name, "is written again", operator)
        known |= {name} - {""}


def _fail(name: str, what: str, operator: Operator | None = None) -> NoReturn:
    op = operator.label if operator else None
    raise MalformedModel(f"the tensor {shortened(name)} {what}", op=op, tensor=shortened(name))
