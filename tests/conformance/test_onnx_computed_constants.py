"""Constants that operators of the file compute. Each model gives ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_files import outputs

RNG = np.random.default_rng(7)


def chained(model: OnnxBuilder, array: np.ndarray[Any, Any]) -> str:
    """Returns a constant that several operators compute: it is stored, dequantized and transposed twice."""
    step = float(np.abs(array).max()) / 127
    real = model.dequantized(model.constant(np.rint(array / step), "int8"), step, 0, "int8")
    return model.node("Identity", [model.node("Transpose", [model.node("Transpose", [real])])])


def transposed_convolution() -> bytes:
    model = OnnxBuilder()
    operands = [chained(model, RNG.normal(size=size)) for size in ((3, 2, 3, 3), (2,))]
    stored = model.quantized(model.input("x", "float32", [1, 3, 8, 8]), 0.05, 100, "uint8")
    x = model.dequantized(stored, 0.05, 100, "uint8")
    model.output(model.node("ConvTranspose", [x, *operands], strides=[2, 2]), "float32")
    return model.build()


def recurrent(op_type: str, gates: int) -> Callable[[], bytes]:
    def build() -> bytes:
        model = OnnxBuilder()
        sizes = ((1, 5 * gates, 4), (1, 5 * gates, 5), (1, 10 * gates))
        operands = [chained(model, RNG.normal(size=size)) for size in sizes]
        x = model.input("x", "float32", [3, 1, 4])
        model.output(model.node(op_type, [x, *operands], hidden_size=5), "float32")
        return model.build()

    return build


def sizes_and_axes() -> bytes:
    """Cast and Identity compute operands that must be constant, for Resize, Reshape, Slice, Pad, Tile and TopK."""
    model = OnnxBuilder()

    def computed(*values: int) -> str:
        return model.node("Identity", [model.node("Cast", [model.constant(values, "int32")], to=7)])

    x = model.node(
        "Resize", [model.input("x", "float32", [1, 3, 8, 8]), "", "", computed(1, 3, 16, 16)], mode="nearest"
    )
    x = model.node("Slice", [x, computed(1), computed(9), computed(2), computed(2)])
    x = model.node("Tile", [model.node("Pad", [x, computed(0, 0, 1, 0, 0, 0, 0, 2)]), computed(1, 2, 1, 1)])
    values = model.name()
    model.node("TopK", [model.node("Reshape", [x, computed(0, -1)]), computed(7)], [values, model.name()])
    model.output(values, "float32")
    return model.build()


CONSTANTS: dict[str, Callable[[], bytes]] = {
    "ConvTranspose": transposed_convolution,
    "GRU": recurrent("GRU", 3),
    "LSTM": recurrent("LSTM", 4),
    "sizes and axes": sizes_and_axes,
}


@pytest.mark.parametrize("kind", CONSTANTS)
def test_constants_may_be_computed_of_others(kind: str, tmp_path: Path) -> None:
    """The order of float32 additions differs. The tolerance covers the rounding of some dozen terms of at most 100."""
    for ours, theirs in outputs(CONSTANTS[kind](), tmp_path, largest=100):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-3)
