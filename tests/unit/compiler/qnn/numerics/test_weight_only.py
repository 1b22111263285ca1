"""Products that ONNX Runtime's optimizer replaces by MatMulNBits are counted; the reference shows which products these
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.weight_only import weight_only_products
from service.core.numerics import ONNXRUNTIME
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


def quantized(model: OnnxBuilder, x: str) -> str:
    return model.quantized(rectified(model, x), 0.05, 0, "uint8")


def shared(model: OnnxBuilder, x: str) -> str:
    both = weights(model)
    return model.node("Add", [model.node("MatMul", [x, both]), model.node("MatMul", [model.node("Relu", [x]), both])])


def real(model: OnnxBuilder, x: str) -> str:
    return model.node("MatMul", [x, model.constant(np.random.default_rng(1).normal(0, 1, (ROWS, COLUMNS)), "float32")])


REPLACED: dict[str, Write] = {
    "one scale": product(None),
    "a scale for each column": product(),
    "blocks": product(0, 32),
    "Gemm": biased,
    "Relu": rectified,
}
KEPT: dict[str, Write] = {
    "a scale for each row": product(0),
    "small blocks": product(0, 8),
    "quantized results": quantized,
    "shared weights": shared,
    "real weights": real,
}


def largest_difference(write: Write) -> tuple[int, float]:
    """Returns the number of products that are counted, and the largest difference relative to the output's range."""
    model = OnnxBuilder()
    y = write(model, model.input("x", "float32", (5, ROWS)))
    model.output(y, "uint8" if write is quantized else "float32")
    data, mode = model.build(21), get_mode(ONNXRUNTIME)
    module = import_model(data)
    sample = [np.random.default_rng(2).normal(0, 1, (5, ROWS)).astype(np.float32)]
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
