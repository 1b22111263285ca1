"""A graph that cannot be computed in order is refused, and the message names the operator or tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.tflite.file.reader import read_model
from service.core.errors import MalformedModel, OctetError, Unsupported
from tests.support.tflite_builder import ModelBuilder, Quant, serialize


def file(bend: Callable[[Any], None]) -> bytes:
    """Returns a file with x → RELU → h → RELU → y and a constant k. `bend` changes LiteRT's object for the model before
    it is written.
    """
    builder = ModelBuilder()
    x, h, y = (builder.tensor(name, (1, 4), np.int8, Quant(1.0)) for name in "xhy")
    builder.constant("k", np.zeros((1, 4), np.int8), Quant(1.0))
    builder.operator("RELU", [x], [h])
    builder.operator("RELU", [h], [y])
    builder.build([x], [y])
    bend(builder.model)
    return serialize(builder.model)


def refused(bend: Callable[[Any], None]) -> OctetError:
    with pytest.raises(OctetError) as caught:
        read_model(file(bend))
    return caught.value


def operator(model: Any, index: int) -> Any:
    return model.subgraphs[0].operators[index]


def set_graph(field: str, value: Any) -> Callable[[Any], None]:
    return lambda model: setattr(model.subgraphs[0], field, value)


def set_operator(index: int, field: str, value: Any) -> Callable[[Any], None]:
    return lambda model: setattr(operator(model, index), field, value)


def test_a_valid_graph_is_read() -> None:
    model = read_model(file(lambda model: None))
    assert [operator.label for operator in model.operators] == ["RELU #0", "RELU #1"]
    assert (model.inputs, model.outputs) == ((0,), (2,))


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (set_graph("inputs", [9]), "the model's inputs: tensor 9 does not exist; there are 4"),
        (set_graph("outputs", [-1]), "the model's outputs: tensor -1 does not exist; there are 4"),
        (set_operator(0, "inputs", [9]), "RELU #0: tensor 9 does not exist; there are 4"),
        (set_operator(0, "inputs", [-2]), "RELU #0: tensor -2 does not exist; there are 4"),
        (set_operator(0, "outputs", [-1]), "RELU #0: tensor -1 does not exist; there are 4"),
        (set_operator(0, "outputs", [0x7FFFFFFF]), "RELU #0: tensor 2147483647 does not exist; there are 4"),
        (set_operator(0, "inputs", [2]), "y is read before any operator computes it"),
        (set_operator(0, "inputs", [1]), "h is read before any operator computes it"),
        (set_operator(1, "outputs", [1]), "h is computed twice"),
        (set_operator(1, "outputs", [0]), "x is computed twice"),
        (set_operator(1, "outputs", [3]), "k is computed twice"),
        (set_operator(1, "outputs", [2, 2]), "y is computed twice"),
        (set_operator(0, "opcodeIndex", 5), "operator #0 has operator code 5; the file has 2"),
        (lambda model: setattr(model, "version", 2), "schema version 2, not 3"),
        (lambda model: setattr(model, "subgraphs", []), "no subgraph"),
    ],
)
def test_malformed(bend: Callable[[Any], None], message: str) -> None:
    error = refused(bend)
    assert isinstance(error, MalformedModel)
    assert message in error.message


def test_an_output_without_an_operator_is_malformed() -> None:
    def drop_last(model: Any) -> None:
        model.subgraphs[0].operators.pop()

    error = refused(drop_last)
    assert isinstance(error, MalformedModel)
    assert error.tensor == "y"


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        (set_graph("operators", []), "no operators"),
        (set_graph("inputs", [0, 0]), "the tensor x is more than one of the model's inputs"),
        (set_graph("inputs", []), "the model has no inputs"),
        (set_graph("outputs", []), "the model has no outputs"),
        (set_graph("inputs", [0, 3]), "k is an input of the model, but also a constant"),
    ],
)
def test_unsupported(bend: Callable[[Any], None], message: str) -> None:
    error = refused(bend)
    assert isinstance(error, Unsupported)
    assert message in error.message
