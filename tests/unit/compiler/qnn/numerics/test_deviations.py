"""Each model gets the documented deviations that concern it."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.deviations import DEVIATIONS, deviations_of
from service.core.builds.numerics import FBGEMM, LITERT_REFERENCE, MODES, ONNXRUNTIME, PT2E
from tests.support.compiled import EXAMPLES
from tests.support.onnx_builder import OnnxBuilder
from tests.support.torchscript import FIXTURES, imported


def test_no_deviation_applies_to_an_integer_network() -> None:
    module = import_model((EXAMPLES / "digits_int8.tflite").read_bytes()).module
    assert deviations_of(module, get_mode(LITERT_REFERENCE)) == []


def test_saturating_layers_are_counted() -> None:
    module = imported(next(path for path in FIXTURES if path.stem == "depthwise")).module
    (deviation,) = deviations_of(module, get_mode(FBGEMM))
    assert (deviation.operator, deviation.layers, deviation.bound_steps) == ("conv2d", 1, None)


def test_sums_that_an_exported_program_adds_in_float_are_counted() -> None:
    module = import_model((FIXTURES[0].parent / "residual_xnnpack.pt2").read_bytes()).module
    found = {each.operator: (each.layers, each.bound_steps) for each in deviations_of(module, get_mode(PT2E))}
    assert found["conv2d"] == (4, 2)
    assert found["dense"] == (1, 2)


@pytest.mark.parametrize(("function", "layers"), [("Exp", 1), ("Relu", 0)])
def test_real_values_that_are_computed_and_quantized_are_counted(function: str, layers: int) -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", (1, 8))
    real = model.node("MatMul", [x, model.constant(np.eye(8), "float32")]) if function == "Exp" else x
    real = model.node(function, [real])
    model.output(model.quantized(real, 0.1, 7, "uint8"), "uint8", (1, 8))
    found = deviations_of(import_model(model.build()).module, get_mode(ONNXRUNTIME))
    assert [each.layers for each in found] == [1] * layers
    assert all((each.operator, each.bound_steps) == ("quantize", 1) for each in found)


def test_every_mode_has_its_table() -> None:
    assert set(DEVIATIONS) == set(MODES)
