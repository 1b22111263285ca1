"""Imports of ONNX models: inputs, outputs and shapes, and the messages for models that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn.coverage import report
from service.core.errors import MalformedModel, Unsupported
from tests.support.onnx_builder import OnnxBuilder


def test_a_float_model_is_compiled_with_a_notice() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    product = model.node("MatMul", ["x", model.constant(np.ones((4, 4)), "float32")])
    model.output(model.node("Softmax", [product]), "float32")
    imported = import_model(model.build())
    (notice,) = facts_of(imported).notices
    assert notice.startswith("this model is float and not quantized: ")
    assert "octet quantize" in notice
    (entry,) = report(imported.module)["floating"]
    assert (entry["reason"], entry["macs"]) == ("float, not quantized", 16)
    assert entry["operators"] >= 2


def test_a_partly_quantized_model_has_no_notice() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    stored = model.quantized("x", 0.5, 3, "uint8")
    real = model.node("DequantizeLinear", [stored, *model.quantization(0.5, 3, "uint8")])
    model.output(model.node("MatMul", [real, model.constant(np.ones((4, 4)), "float32")]), "float32")
    imported = import_model(model.build())
    assert facts_of(imported).notices == ()
    assert "float, not quantized" not in {each["reason"] for each in report(imported.module)["floating"]}


def test_the_message_names_the_problem_and_the_operator() -> None:
    model = OnnxBuilder()
    model.input("x", "uint8", [1, 3, 4, 4])
    x, w = model.quantization(0.5, 3, "uint8"), model.quantization(0.1, 0, "int8")
    weights = model.constant(np.ones((2, 4, 1, 1)), "int8")
    model.output(model.node("QLinearConv", ["x", *x, weights, *w, *x], ["features"]), "uint8")
    with pytest.raises(Unsupported, match=r"QLinearConv #0 has 3 channels, but weights \[2, 4, 1, 1\]") as caught:
        import_model(model.build())
    assert caught.value.tensor == "features"


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan])
def test_scales_that_are_not_positive_are_refused_by_name(scale: float) -> None:
    """ONNX Runtime runs files with such scales. Of these, only weights with a scale of 0 are compiled
    (`zero_scales`)."""
    model = OnnxBuilder()
    model.input("x", "float32", [4])
    model.output(model.quantized("x", scale, 0, "uint8"), "uint8")
    with pytest.raises(Unsupported, match="QuantizeLinear #0 has a scale that is not positive, c1"):
        import_model(model.build())


def test_an_infinite_scale_is_refused_with_a_hint() -> None:
    """ONNX Runtime's tools compute such a scale for a mask that contains the lowest float32."""
    model = OnnxBuilder()
    model.input("x", "float32", [4])
    model.output(model.quantized("x", np.inf, 0, "uint8"), "uint8")
    with pytest.raises(Unsupported, match="QuantizeLinear #0 has an infinite scale") as caught:
        import_model(model.build())
    assert "nodes_to_exclude" in str(caught.value.hint)


def test_a_small_file_does_not_become_a_large_model() -> None:
    model = OnnxBuilder()
    name = model.input("x", "uint8", [1, 1 << 20])
    for _ in range(40):
        name = model.node("Concat", [name] * 8, axis=1)
    model.output(name, "uint8")
    with pytest.raises(Unsupported, match="computes a tensor of shape"):
        import_model(model.build())


def test_shapes_are_computed_while_importing() -> None:
    """`x.view(x.size(0), -1)` is exported by PyTorch in this form."""
    model = OnnxBuilder()
    x = model.input("x", "float32", ["N", 2, 3])
    batch = model.node("Gather", [model.node("Shape", [x]), model.constant(0, "int64")], axis=0)
    batch = model.node("Unsqueeze", [batch, model.constant([0], "int64")])
    shape = model.node("Concat", [batch, model.constant([-1], "int64")], axis=0)
    model.output(model.node("Reshape", [x, shape]), "float32", ["N", 6])
    assert import_model(model.build()).signature.outputs[0].shape == (1, 6)


def test_masks_computed_from_constants_are_constants() -> None:
    """Exported transformers contain such masks. They have more elements than a shape, but do not depend on an input."""
    model = OnnxBuilder()
    x = model.input("x", "float32", [1, 512, 512])
    ones = model.node("ConstantOfShape", [model.constant([512, 512], "int64")], value=np.ones(1, np.float32))
    mask = model.node("Trilu", [ones, model.constant(1, "int64")])
    hidden = model.node("Where", [model.node("Cast", [mask], to=9), model.constant(-1e9, "float32"), mask])
    model.output(model.node("Add", [x, hidden]), "float32")
    assert import_model(model.build()).signature.outputs[0].shape == (1, 512, 512)


def test_a_sum_of_one_operand_is_refused() -> None:
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", [1, 4]), 0.5, 3, "uint8")
    model.output(model.quantized(model.node("Add", [x]), 0.5, 3, "uint8"), "uint8")
    with pytest.raises(MalformedModel, match=r"Add #\d+ has only 1 inputs"):
        import_model(model.build())
