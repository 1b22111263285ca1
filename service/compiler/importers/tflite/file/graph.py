"""Checks that a model's operators and tensors form a graph that can be computed in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from service.compiler.importers.tflite.model import Model, Operator, Subgraph
from service.core.errors import MalformedModel, Unsupported

_OMITTED = -1  # kTfLiteOptionalTensor


def check_graph(model: Model) -> None:
    """Checks that every index is in range, and that every tensor is defined exactly once (as an input, a constant or an
    operator's output) before it is read. An output may be an input or a constant, and one tensor may be several
    outputs.

    Raises:
        MalformedModel: one of these conditions does not hold.
        Unsupported: LiteRT loads the model, but it has no inputs, no outputs or no operators, or one tensor is several
            inputs.
    """
    _check_ends(model)
    known = check_order(model)
    for index in model.outputs:
        if index not in known:
            _fail(model, index, "is an output of the model, but no operator computes it")
    for graph in model.subgraphs.values():
        _check_indices(graph, (*graph.inputs, *graph.outputs), f"subgraph {graph.number}")
        known = check_order(graph)
        for index in graph.outputs:
            if index not in known:
                _fail(graph, index, f"is an output of subgraph {graph.number}, but no operator computes it")


def check_order(graph: Subgraph) -> set[int]:
    """Checks the operators as `check_graph` does, but not the outputs. Returns all tensors that are inputs, constants,
    states or computed.
    """
    known = {tensor.index for tensor in graph.tensors if tensor.is_constant or tensor.is_variable}
    known |= set(graph.inputs)
    for operator in graph.operators:
        _check_operator(graph, operator, known)
        known |= set(operator.outputs)
    return known


def _check_ends(model: Model) -> None:
    if not model.operators:
        raise Unsupported("the model has no operators")
    for indices, what in ((model.inputs, "input"), (model.outputs, "output")):
        if not indices:
            raise Unsupported(f"the model has no {what}s")
        _check_indices(model, indices, f"the model's {what}s")
    for position, index in enumerate(model.inputs):
        label = model.tensors[index].label
        if index in model.inputs[:position]:
            raise Unsupported(f"the tensor {label} is more than one of the model's inputs", tensor=label)
        if model.tensors[index].is_constant:
            raise Unsupported(f"the tensor {label} is an input of the model, but also a constant", tensor=label)


def _check_operator(model: Subgraph, operator: Operator, known: set[int]) -> None:
    _check_indices(model, [index for index in operator.inputs if index != _OMITTED], operator.label, operator)
    _check_indices(model, operator.outputs, operator.label, operator)
    _check_indices(model, [index for index in operator.intermediates if index != _OMITTED], operator.label, operator)
    for index in operator.inputs:
        if index != _OMITTED and index not in known:
            _fail(model, index, "is read before any operator computes it, or its data is not in the file", operator)
    for position, index in enumerate(operator.outputs):
        if index in known or index in operator.outputs[:position]:
            _fail(model, index, "is computed twice, or is an input or a constant", operator)


def _check_indices(model: Subgraph, indices: Sequence[int], what: str, operator: Operator | None = None) -> None:
    for index in indices:
        if not 0 <= index < len(model.tensors):
            raise MalformedModel(
                f"{what}: tensor {index} does not exist; there are {len(model.tensors)}",
                op=operator.label if operator else None,
            )


def _fail(model: Subgraph, index: int, what: str, operator: Operator | None = None) -> NoReturn:
    label = model.tensors[index].label
    raise MalformedModel(f"the tensor {label} {what}", op=operator.label if operator else None, tensor=label)
