"""A small file cannot require much memory, many operators, or much time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.core.errors import MalformedModel, Unsupported
from tests.support.onnx_builder import OnnxBuilder

Body = Callable[[OnnxBuilder, str], str]


def model_of(body: Body, shape: tuple[int, ...] = (1, 4)) -> bytes:
    """Returns a model of real values. They were dequantized, so the model counts as quantized."""
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", shape), 0.5, 3, "uint8")
    model.output(body(model, model.node("Sqrt", [x])), "float32")
    return model.build()


def moved(op_type: str, *operands: list[int], **attributes: Any) -> Body:
    return lambda model, x: model.node(
        op_type, [x, *(model.constant(each, "int64") for each in operands)], **attributes
    )


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (moved("Tile", [1 << 40, 1 << 40]), "computes a tensor of shape"),
        (moved("Expand", [1 << 20, 1 << 20, 1]), "computes a tensor of shape"),
        (moved("Pad", [0, 0, 1 << 30, 1 << 30], mode="edge"), "pads by"),
        (moved("Pad", [0, 1 << 40, 0, 0]), "pads by"),
    ],
)
def test_moved_tensors_stay_small(body: Body, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        import_model(model_of(body))


@pytest.mark.parametrize(
    ("op_type", "kernel", "what"),
    [
        ("MaxPool", [512, 512], "windows of 262144 real values"),
        ("AveragePool", [1100, 2], "windows of 1100 real values along axis 2"),
    ],
)
def test_a_window_of_real_values_is_not_an_operator_for_each_pixel(op_type: str, kernel: list[int], what: str) -> None:
    def pooled(model: OnnxBuilder, x: str) -> str:
        return model.node(op_type, [x], kernel_shape=kernel)

    with pytest.raises(Unsupported, match=what):
        import_model(model_of(pooled, (1, 1, 1200, 600)))


def counted(*numbers: float, dtype: str = "int64") -> Body:
    def body(model: OnnxBuilder, x: str) -> str:
        row = model.node("Range", [model.constant(each, dtype) for each in numbers])
        return model.node("Expand", [x, row])

    return body


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (counted(0, 1 << 60, 1), "has 1152921504606846976 elements"),
        (counted(0, 1, 0), "cannot count from 0 to 1 in steps of 0"),
        (counted(0, np.inf, 1, dtype="float32"), "cannot count from 0.0 to inf"),
        (moved("TopK", [5]), "selects 5 of 4 elements"),
        (moved("TopK", [1 << 60]), "selects 1152921504606846976 of 4"),
        (moved("CumSum", [7]), "has axis 7, but its input has 2"),
        (moved("GatherElements", [9], axis=1), r"indices \[1\], which do not fit the data \[1, 4\]"),
        (moved("GatherND", [9]), "has indices beyond"),
        (moved("Einsum", equation="ij,jk->ik"), "does not fit 1 operands"),
        (moved("Einsum", equation="ij->ijz"), "has the invalid equation"),
    ],
)
def test_positions_and_counts_are_checked(body: Body, what: str) -> None:
    with pytest.raises((MalformedModel, Unsupported), match=what):
        import_model(model_of(body))


@pytest.mark.parametrize("depth", [0, -3, 1 << 40])
def test_the_depth_of_one_hot_rows_is_checked(depth: int) -> None:
    model = OnnxBuilder()
    operands = [model.input("x", "int64", (1, 4)), model.constant(depth, "int64"), model.constant([0, 1], "float32")]
    model.output(model.node("OneHot", operands), "float32")
    with pytest.raises(Unsupported, match=f"has a depth of {depth}"):
        import_model(model.build())


@pytest.mark.parametrize("op_type", ["Mod", "Div"])
def test_whole_numbers_are_not_divided_by_zero(op_type: str) -> None:
    model = OnnxBuilder()
    x = model.input("x", "int64", (1, 4))
    model.output(model.node(op_type, [x, model.constant([1, 2, 0, 3], "int64")]), "int64")
    with pytest.raises(Unsupported, match="divides by zero"):
        import_model(model.build())


def test_strides_do_not_allocate_memory() -> None:
    weights = np.ones((1, 1, 2, 2))

    def spread(model: OnnxBuilder, x: str) -> str:
        return model.node("ConvTranspose", [x, model.constant(weights, "float32")], strides=[1 << 20, 1 << 20])

    with pytest.raises(Unsupported, match="computes a tensor of shape"):
        import_model(model_of(spread, (1, 1, 9, 9)))


def test_computed_constants_count_as_constants_of_the_file() -> None:
    weights = np.ones((64, 64, 8, 8))

    def repeated(model: OnnxBuilder, x: str) -> str:
        name = model.constant(weights, "float32")
        for _ in range(12):
            x = model.node("ConvTranspose", [x, name], pads=[0, 0, 7, 7])
        return x

    with pytest.raises(Unsupported, match="far larger than the file"):
        import_model(model_of(repeated, (1, 64, 9, 9)))
