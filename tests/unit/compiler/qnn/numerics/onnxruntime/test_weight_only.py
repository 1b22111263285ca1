"""Counts products that ONNX Runtime's optimizer replaces by MatMulNBits. The reference runtime shows which products it
replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.onnxruntime.weight_only import weight_only_products
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

ROWS, COLUMNS = 64, 12
Write = Callable[[OnnxBuilder, str], str]


def weights(model: OnnxBuilder, axis: int | None = 1, block: int = 0) -> str:
    rng = np.random.default_rng(1)
    shape: tuple[int, ...] = () if axis is None else (ROWS if axis == 0 else COLUMNS,)
    shape = (ROWS // block, COLUMNS) if block else shape
    stored = model.constant(rng.integers(-127, 128, (ROWS, COLUMNS)), "int8")
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    if block:
        attributes["block_size"] = block
    return model.node(
        "DequantizeLinear", [stored, model.constant(rng.uniform(0.005, 0.02, shape), "float32")], **attributes
    )


def product(axis: int | None = 1, block: int = 0) -> Write:
    return lambda model, x: model.node("MatMul", [x, weights(model, axis, block)])


def biased(model: OnnxBuilder, x: str) -> str:
    return model.node("Gemm", [x, weights(model), model.constant(np.ones(COLUMNS), "float32")])


def rectified(model: OnnxBuilder, x: str) -> str:
    return model.node("Relu", [product()(model, x)])


def quantized(*operators: str, biases: Sequence[tuple[int, ...]] = ()) -> Write:
    """Returns a function that writes a product, an Add for each bias (of the given shapes), `operators`, and a
    QuantizeLinear.
    """

    def write(model: OnnxBuilder, x: str) -> str:
        y = product()(model, x)
        for shape in biases:
            y = model.node("Add", [y, model.constant(np.ones(shape), "float32")])
        for operator in operators:
            y = model.node(operator, [y])
        return model.quantized(y, 0.05, 3, "uint8")

    return write


def clipped(model: OnnxBuilder, x: str) -> str:
    bounds = [model.constant(value, "float32") for value in (-2, 6)]
    return model.quantized(model.node("Clip", [product()(model, x), *bounds]), 0.05, 128, "uint8")


def shared(model: OnnxBuilder, x: str) -> str:
    both = weights(model)
    return model.node("Add", [model.node("MatMul", [x, both]), model.node("MatMul", [model.node("Relu", [x]), both])])


def real(model: OnnxBuilder, x: str) -> str:
    return model.node("MatMul", [x, model.constant(np.random.default_rng(1).normal(0, 1, (ROWS, COLUMNS)), "float32")])


VECTOR, ROW, COLUMN, MATRIX = (COLUMNS,), (1, COLUMNS), (5, 1), (5, COLUMNS)
REPLACED: dict[str, Write] = {
    "one scale": product(None),
    "a scale for each column": product(),
    "blocks": product(0, 32),
    "Gemm": biased,
    "Relu": rectified,
    "LeakyRelu": quantized("LeakyRelu"),
    "Transpose and Relu": quantized("Transpose", "Relu"),
    "a bias without dimensions": quantized(biases=[()]),
    "a bias of three dimensions": quantized(biases=[(1, *ROW)]),
    "two biases": quantized(biases=[VECTOR, VECTOR]),
}
KEPT: dict[str, Write] = {
    "a scale for each row": product(0),
    "small blocks": product(0, 8),
    "shared weights": shared,
    "real weights": real,
    "quantized results": quantized(),
    "Relu before QuantizeLinear": quantized("Relu"),
    "Clip before QuantizeLinear": clipped,
    "a bias for each column": quantized("Relu", biases=[VECTOR]),
    "a row as bias": quantized(biases=[ROW]),
    "a bias for each row": quantized(biases=[COLUMN]),
    "a bias for each element": quantized(biases=[MATRIX]),
}
# Products that are replaced if the activations have three dimensions.
REPLACED_IN_BATCHES = {
    "a rectified bias": quantized("Relu", biases=[VECTOR]),
    "a bias for each element": quantized(biases=[MATRIX]),
    "LeakyRelu": quantized("LeakyRelu"),
}
KEPT_IN_BATCHES = {"quantized results": quantized(), "Relu before QuantizeLinear": quantized("Relu")}


def largest_difference(write: Write, shape: tuple[int, ...] = (5, ROWS)) -> tuple[int, float]:
    """Returns the number of counted products, and the largest difference from ONNX Runtime relative to the output's
    range.
    """
    model = OnnxBuilder()
    y = write(model, model.input("x", "float32", shape))
    model.output(y, "uint8" if write is clipped or "quantized" in write.__qualname__ else "float32")
    data, mode = model.build(21), get_mode(ONNXRUNTIME)
    module = import_model(data)
    sample = [np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)]
    ours, theirs = oracle.run(module.module, mode, sample)[0], Reference(data, optimized=True)(sample)[0]
    difference = np.abs(ours.astype(np.float64) - theirs).max() / np.ptp(theirs)
    return weight_only_products(module.module, mode), float(difference)


@pytest.mark.parametrize("name", REPLACED)
def test_replaced_products_are_counted(name: str) -> None:
    count, difference = largest_difference(REPLACED[name])
    assert count == 1
    assert difference > 1e-3


@pytest.mark.parametrize("name", KEPT)
def test_other_products_are_not_counted(name: str) -> None:
    count, difference = largest_difference(KEPT[name])
    assert count == 0
    assert difference < 1e-5


@pytest.mark.parametrize("name", REPLACED_IN_BATCHES)
def test_replaced_products_of_three_dimensions_are_counted(name: str) -> None:
    count, difference = largest_difference(REPLACED_IN_BATCHES[name], (2, 5, ROWS))
    assert count == 1
    assert difference > 1e-3


@pytest.mark.parametrize("name", KEPT_IN_BATCHES)
def test_other_products_of_three_dimensions_are_not_counted(name: str) -> None:
    count, difference = largest_difference(KEPT_IN_BATCHES[name], (2, 5, ROWS))
    assert count == 0
    assert difference < 1e-5
