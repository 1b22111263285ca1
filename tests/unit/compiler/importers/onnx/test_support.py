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
    x, router = model.input("x", "float32", [3, 4]), model.input("router", "float32", [3, 2])
    weights, scales = model.constant(np.ones((2, 8, 2)), "uint8"), model.constant(np.ones((2, 8)), "float32")
    model.output(model.microsoft("QMoE", [x, router, weights, scales, "", weights, scales]), "float32")
    with pytest.raises(UnsupportedOperator, match=r"com.microsoft.QMoE #0") as caught:
        import_model(model.build())
    assert "choose a model without a mixture of experts" in str(caught.value.hint)


def test_unsupported_outputs_are_allowed_if_nothing_reads_them() -> None:
    model = OnnxBuilder()
    x, row = model.input("x", "float32", [1, 4]), model.constant(np.ones(4), "float32")
    model.node("SkipLayerNormalization", [x, x, row], ["y", "mean"], "com.microsoft")
    model.output("y", "float32")
    assert import_model(model.build()).signature.outputs[0].shape == (1, 4)
    model.output("mean", "float32")
    with pytest.raises(Unsupported, match="the output mean cannot be compiled"):
        import_model(model.build())
