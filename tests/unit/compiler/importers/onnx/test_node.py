"""Errors name the operator and its operands."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.core.errors import Unsupported
from tests.support.onnx_builder import OnnxBuilder


def test_operands_that_do_not_fit_are_named() -> None:
    """The message does not contain TVM's own message, although TVM infers the types."""
    model = OnnxBuilder()
    x = model.input("x", "float32", [2, 4])
    operands = [model.constant(np.ones(size), "float32") for size in ((4, 5), (3,))]
    model.output(model.node("Gemm", [x, *operands]), "float32")
    with pytest.raises(Unsupported) as caught:
        import_model(model.build())
    fits = "its operands do not fit together: float32 [2, 4], float32 [4, 5], float32 [3]"
    assert caught.value.message == f"Gemm #0: {fits}"


def test_an_error_names_the_operator_of_the_file() -> None:
    """The error names the operator in the file, not the quantized operator that replaced it."""
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", [1, 3, 4, 4]), 0.5, 3, "uint8")
    weights = model.dequantized(model.constant(np.ones((2, 4, 1, 1)), "int8"), 0.1, 0, "int8")
    model.output(model.quantized(model.node("Conv", [x, weights]), 0.5, 3, "uint8"), "uint8")
    with pytest.raises(Unsupported, match=r"^Conv #2 has 3 channels"):
        import_model(model.build())
