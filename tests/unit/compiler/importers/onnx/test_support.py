"""Operators that cannot be compiled are named, with a remedy."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.core.errors import Unsupported, UnsupportedOperator
from tests.support.onnx_builder import OnnxBuilder


def test_all_unsupported_operators_are_named_at_once() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.output(model.node("Unique", [model.node("Sigmoid", [model.node("Det", ["x"])])]), "float32")
    with pytest.raises(UnsupportedOperator) as caught:
        import_model(model.build())
    assert "2 of 3 operators" in caught.value.message
    assert "Det, Unique" in caught.value.message


def test_an_unsupported_operator_has_a_remedy() -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", [3, 1, 4])
    weights = [model.constant(np.ones(size), "int8") for size in ((1, 4, 20), (1, 5, 20))]
    parameters = model.quantization([[0.1]], [[0]], "int8")
    model.output(model.microsoft("DynamicQuantizeLSTM", [x, *weights, "", "", "", "", "", *parameters * 2]), "float32")
    with pytest.raises(UnsupportedOperator, match=r"com.microsoft.DynamicQuantizeLSTM #0") as caught:
        import_model(model.build())
    assert "leave the LSTM out of quantize_dynamic" in str(caught.value.hint)


def test_unsupported_outputs_are_allowed_if_nothing_reads_them() -> None:
    model = OnnxBuilder()
    x, row = model.input("x", "float32", [1, 4]), model.constant(np.ones(4), "float32")
    model.node("LayerNormalization", [x, row], ["y", "mean"])
    model.output("y", "float32")
    assert import_model(model.build()).signature.outputs[0].shape == (1, 4)
    model.output("mean", "float32")
    with pytest.raises(Unsupported, match="the output mean cannot be compiled"):
        import_model(model.build())


def test_nonmaximum_suppression_is_refused_with_a_hint() -> None:
    model = OnnxBuilder()
    boxes, scores = model.input("boxes", "float32", [1, 9, 4]), model.input("scores", "float32", [1, 2, 9])
    model.output(model.node("NonMaxSuppression", [boxes, scores], ["kept"]), "int64")
    with pytest.raises(Unsupported, match="NonMaxSuppression #0 returns as many boxes as it finds") as caught:
        import_model(model.build())
    assert "nms=False" in str(caught.value.hint)
