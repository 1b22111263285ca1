"""Functions of one value of TFLite."""

from __future__ import annotations

from service.compiler.importers.tflite import import_model
from tests.support.operator_calls import call, quantized
from tests.support.tflite_catalog import MODELS


def test_a_separate_activation_becomes_a_function_with_a_clamped_type() -> None:
    out_type = quantized(call(import_model(MODELS["relu6 uint8"]()), "qnn.relu"), "out_type")
    assert (out_type.min, out_type.max) == (131, 191)
