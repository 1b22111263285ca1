"""DynamicQuantizeLSTM, compared with ONNX Runtime bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import MalformedModel
from service.core.target import detect_host
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.selected import run_selected

Real = NDArray[np.float32]


def layer(
    direction: str = "forward",
    dtype: str = "int8",
    *,
    steps: int = 3,
    batch: int = 2,
    width: int = 5,
    size: int = 6,
    by_column: bool = False,
    biased: bool = True,
    started: bool = True,
    point: int | None = None,
    outputs: tuple[str, ...] = ("y", "h", "c"),
) -> tuple[bytes, list[Real]]:
    """Returns a file with one layer, and inputs for it."""
    rng, model, inputs = np.random.default_rng(steps + size), OnnxBuilder(), list[Real]()
    directions = 1 + (direction == "bidirectional")
    bounds = np.iinfo(dtype)
    if point is None:
        point = 0 if dtype == "int8" else 119

    def given_as(name: str, *shape: int) -> str:
        inputs.append(rng.standard_normal(shape).astype(np.float32))
        return model.input(name, "float32", shape)

    def stored(rows: int) -> str:
        return model.constant(rng.integers(bounds.min, bounds.max + 1, (directions, rows, 4 * size)), dtype)

    parameters = (directions, 4 * size) if by_column else (directions,)
    names = [given_as("x", steps, batch, width), stored(width), stored(size)]
    names += [model.constant(0.3 * rng.standard_normal((directions, 8 * size)), "float32") if biased else "", ""]
    names += [given_as(name, directions, batch, size) if started else "" for name in ("h0", "c0")]
    names.append("")
    for _ in range(2):
        names.append(model.constant(0.002 + 0.003 * rng.random(parameters), "float32"))
        names.append(model.constant(np.full(parameters, point), dtype))
    model.node("DynamicQuantizeLSTM", names, list(outputs), "com.microsoft", hidden_size=size, direction=direction)
    for name in filter(None, outputs):
        model.output(name, "float32")
    return model.build(), inputs


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "uint8"},
        {"dtype": "uint8", "by_column": True},
        {"biased": False, "started": False},
        {"steps": 1, "batch": 1},
        {"steps": 9, "batch": 1, "width": 33, "size": 20, "by_column": True},
        {"outputs": ("", "h", "c")},
        {"outputs": ("y",), "batch": 5},
    ],
)
def test_results_are_those_of_onnx_runtime(direction: str, options: dict[str, Any]) -> None:
    assert_equal(*layer(direction, **options))


def test_an_int8_layer_may_have_a_zero_point() -> None:
    assert_equal(*layer("bidirectional", point=-7))


def test_an_input_of_zeros_has_the_scale_1() -> None:
    file, inputs = layer()
    assert_equal(file, [np.zeros_like(each) for each in inputs])


def test_the_compiled_layer_computes_the_same(tmp_path: Any) -> None:
    file, inputs = layer("bidirectional", steps=4, width=24, size=32, by_column=True)
    expected = Reference(file, optimized=True)(inputs)
    _, compiled = run_selected(import_model(file).module, detect_host().target, ONNXRUNTIME, inputs, tmp_path)
    for own, wanted in zip(compiled, expected, strict=True):
        np.testing.assert_array_equal(own, wanted)


def test_weights_of_another_shape_are_refused() -> None:
    model = OnnxBuilder()
    names = [model.input("x", "float32", (3, 1, 5)), *(model.constant(np.zeros((1, 4, 24)), "int8") for _ in range(2))]
    parameters = [model.constant([0.1], "float32"), model.constant([0], "int8")]
    operands = [*names, "", "", "", "", "", *parameters * 2]
    model.output(model.microsoft("DynamicQuantizeLSTM", operands, hidden_size=6), "float32")
    with pytest.raises(MalformedModel, match=r"has weights \[1, 4, 24\], not \[1, 5, 16\]"):
        import_model(model.build())


def assert_equal(file: bytes, inputs: list[Real]) -> None:
    expected = Reference(file, optimized=True)(inputs)
    actual = oracle.run(import_model(file).module, get_mode(ONNXRUNTIME), inputs)
    for own, wanted in zip(actual, expected, strict=True):
        assert own.shape == wanted.shape
        np.testing.assert_array_equal(own, wanted)
