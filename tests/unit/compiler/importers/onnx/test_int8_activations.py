"""Products that ONNX Runtime's optimizer replaces by MatMulNBits quantize their activations, and only these do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.deviations import deviations_of
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


def turned(model: OnnxBuilder, x: str) -> str:
    rng = np.random.default_rng(1)
    names = [model.constant(rng.integers(-127, 128, (COLUMNS, ROWS)), "int8")]
    names.append(model.constant(rng.uniform(0.005, 0.02, COLUMNS), "float32"))
    return model.node("MatMul", [x, model.node("Transpose", [model.node("DequantizeLinear", names, axis=0)])])


def turned_nibbles(model: OnnxBuilder, x: str) -> str:
    rng = np.random.default_rng(1)
    names = [model.nibbles(rng.integers(-8, 8, (COLUMNS, ROWS)), "int4"), model.constant(0.1, "float32")]
    return model.node("MatMul", [x, model.node("Transpose", [model.node("DequantizeLinear", names)])])


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
    "transposed weights": turned,
    "transposed weights of 4 bits": turned_nibbles,
    "an axis that is counted from the end": product(-1),
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


def check(write: Write, quantized_products: int, shape: tuple[int, ...] = (5, ROWS)) -> None:
    """Checks the number of products whose activations are quantized, and that the results are ONNX Runtime's within the
    rounding of sums.
    """
    model = OnnxBuilder()
    y = write(model, model.input("x", "float32", shape))
    model.output(y, "uint8" if write is clipped or "quantized" in write.__qualname__ else "float32")
    data, mode = model.build(21), get_mode(ONNXRUNTIME)
    module = import_model(data).module
    sample = [np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)]
    ours, theirs = oracle.run(module, mode, sample)[0], Reference(data, optimized=True)(sample)[0]
    names = [graph.name_of(value) for _, value in graph.bindings(graph.main_of(module))]
    assert names.count("round") == quantized_products
    assert np.abs(ours.astype(np.float64) - theirs).max() / np.ptp(theirs) < 1e-5
    assert (
        sum(each.layers for each in deviations_of(module, mode) if each.operator == "real_matmul") == quantized_products
    )


@pytest.mark.parametrize("name", REPLACED)
def test_activations_are_quantized_as_in_onnx_runtime(name: str) -> None:
    check(REPLACED[name], 1)


@pytest.mark.parametrize("name", KEPT)
def test_other_activations_stay_real(name: str) -> None:
    check(KEPT[name], 0)


@pytest.mark.parametrize("name", REPLACED_IN_BATCHES)
def test_activations_of_three_dimensions_are_quantized(name: str) -> None:
    check(REPLACED_IN_BATCHES[name], 1, (2, 5, ROWS))


@pytest.mark.parametrize("name", KEPT_IN_BATCHES)
def test_other_activations_of_three_dimensions_stay_real(name: str) -> None:
    check(KEPT_IN_BATCHES[name], 0, (2, 5, ROWS))
