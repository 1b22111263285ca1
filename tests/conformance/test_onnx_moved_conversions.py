"""Conversions that ONNX Runtime's optimizer moves through other operators. The results equal ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_optimizer import Rng, Write, compare, filters, pair


def pairs_around_a_dropout(model: OnnxBuilder, rng: Rng) -> None:
    x = pair(model, model.input("x", "float32", (2, 40)), 0.05, 128)
    model.output(pair(model, model.node("Dropout", [x]), 0.031, 100), "float32")


def pairs_around_a_relu(model: OnnxBuilder, rng: Rng) -> None:
    """The model has a Relu between two pairs. The optimizer merges adjacent pairs before it removes such a Relu, so
    these two pairs are never merged."""
    x = pair(model, model.input("x", "float32", (3, 50)), 0.05, 77)
    model.output(pair(model, model.node("Relu", [x]), 0.031, 0), "float32")


def around(op_type: str, between: str, front: bool, point: int = 100) -> Write:
    """Returns a model of `op_type` between conversions, with `between` before or after it. ONNX Runtime moves
    conversions through some operators, and computes in float32 after others.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        x = pair(model, model.input("x", "float32", (1, 4, 6, 8)), 0.0513, 110)
        y = BETWEEN[between](model, x) if front else x
        y = AROUND[op_type](model, y, rng)
        y = y if front else BETWEEN[between](model, y)
        model.output(pair(model, y, 0.0417, point), "float32")

    return write


AROUND: dict[str, Callable[[OnnxBuilder, str, Rng], str]] = {
    "Identity": lambda model, x, rng: model.node("Identity", [x]),
    "Softmax": lambda model, x, rng: model.node("Softmax", [x], axis=-1),
    "Sigmoid": lambda model, x, rng: model.node("Sigmoid", [x]),
    "Add": lambda model, x, rng: model.node("Add", [x, x]),
    "AveragePool": lambda model, x, rng: model.node("AveragePool", [x], kernel_shape=[2, 2]),
    "MatMul and Add": lambda model, x, rng: model.node(
        "Add",
        [
            model.node("MatMul", [x, filters(model, rng, (8, 12), 1, "")]),
            model.constant(rng.normal(0, 1, 12), "float32"),
        ],
    ),
    "Conv, real weights": lambda model, x, rng: model.node(
        "Conv",
        [x, model.constant(rng.normal(0, 1, (5, 4, 3, 3)), "float32"), model.constant(rng.normal(0, 1, 5), "float32")],
    ),
}


BETWEEN: dict[str, Callable[[OnnxBuilder, str], str]] = {
    "Relu": lambda model, x: model.node("Relu", [x]),
    "Relu and Transpose": lambda model, x: model.node("Transpose", [model.node("Relu", [x])], perm=[0, 1, 3, 2]),
    "Transpose": lambda model, x: model.node("Transpose", [x], perm=[0, 1, 3, 2]),
    "Transpose and Relu": lambda model, x: model.node("Relu", [model.node("Transpose", [x], perm=[0, 1, 3, 2])]),
    "Reshape and Relu": lambda model, x: model.node(
        "Relu", [model.node("Reshape", [x, model.constant([1, 8, 6, 4], "int64")])]
    ),
    "Transpose and Clip": lambda model, x: model.node(
        "Clip",
        [model.node("Transpose", [x], perm=[0, 1, 3, 2]), *(model.constant(each, "float32") for each in (0, 20))],
    ),
    "Slice": lambda model, x: model.node("Slice", [x, *(model.constant([each], "int64") for each in (1, 5, 2))]),
    "MaxPool": lambda model, x: model.node("MaxPool", [x], kernel_shape=[1, 1]),
    "Gather": lambda model, x: model.node("Gather", [x, model.constant([3, 1, 0, 2], "int64")], axis=1),
    "Split": lambda model, x: model.node("Split", [x], [model.name()], axis=1),
    "Dropout": lambda model, x: model.node("Dropout", [x]),
    "ReduceMax": lambda model, x: model.node("ReduceMax", [x], axes=[2], keepdims=1),
    "Tile": lambda model, x: model.node("Tile", [x, model.constant([2, 1, 1, 1], "int64")]),
}


MOVED: dict[str, Write] = {
    **{f"{between}, Softmax": around("Softmax", between, True) for between in BETWEEN},
    **{f"Softmax, {between}": around("Softmax", between, False) for between in BETWEEN},
    "Softmax, Relu that changes nothing": around("Softmax", "Relu", False, point=0),
    "Softmax, Relu that changes nothing, Transpose": around("Softmax", "Relu and Transpose", False, point=0),
    "Softmax, Transpose, Relu that changes nothing": around("Softmax", "Transpose and Relu", False, point=0),
    "Softmax, Reshape, Relu that changes nothing": around("Softmax", "Reshape and Relu", False, point=0),
    "Softmax, Transpose, Clip that changes nothing": around("Softmax", "Transpose and Clip", False, point=0),
    **{f"{op_type}, Relu that leaves one value": around(op_type, "Relu", False, point=255) for op_type in AROUND},
    "Relu that leaves one value": around("Identity", "Relu", False, point=255),
    **{
        f"{between}, {op_type}": around(op_type, between, True)
        for op_type in ("Sigmoid", "Add", "AveragePool", "MatMul and Add")
        for between in ("Relu", "Gather")
    },
    **{f"{between}, Conv": around("Conv, real weights", between, True) for between in ("Relu", "Gather", "Transpose")},
    **{f"Conv, {between}": around("Conv, real weights", between, False) for between in ("Gather", "Tile")},
    "two pairs around a Dropout": pairs_around_a_dropout,
    "two pairs around a Relu that changes nothing": pairs_around_a_relu,
}


@pytest.mark.parametrize("name", MOVED)
def test_through_what_conversions_move(name: str, tmp_path: Path) -> None:
    compare(MOVED[name], tmp_path)
