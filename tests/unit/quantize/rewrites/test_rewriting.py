"""When a file with conversions is imported, its layers become integer operators."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn.coverage import report
from service.compiler.qnn.printer import text_of
from service.compiler.qnn.types import QuantizedType
from service.core.errors import Unsupported
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import fold_affine
from service.quantize.rewrites.patterns import plan
from service.quantize.rewrites.rewriting import Form, Stored, rewrite, weight_scales
from tests.support.float_networks import residual_network
from tests.support.onnx_builder import OnnxBuilder


def quantized(data: bytes, storage: str = "uint8") -> tuple[bytes, dict[str, Stored]]:
    """Quantizes a model. Every tensor has the range -4 to 8."""
    document = Document(data)
    fold_affine(document)
    planned = plan(document)
    twins = rewrite(document, planned, Form({name: affine(-4, 8, storage) for name in planned.observed}))
    return document.serialize(), twins


@pytest.mark.parametrize("storage", ["uint8", "int8"])
def test_every_product_is_of_integers(storage: str) -> None:
    file, _ = quantized(residual_network(), storage)
    covered = report(import_model(file).module)
    assert covered["integer_percent"] == 100
    assert [each["op"].split("_")[0] for each in covered["floating"] if not each.get("boundary")] == ["Softmax"]


def test_the_graph_before_and_after() -> None:
    """A convolution, a Relu and an addition become integer operators, each with one requantization. Softmax stays in
    float.
    """
    model = OnnxBuilder()
    x = model.input("x", "float32", (1, 2, 4, 4))
    filters = model.constant(np.array([[-1, -0.5], [0, 0.5]]).reshape(2, 2, 1, 1), "float32")
    y = model.node("Conv", [x, filters, model.constant([1.0, -1.0], "float32")], kernel_shape=[1, 1])
    scores = model.node("Softmax", [model.node("Add", [x, model.node("Relu", [y])])], ["scores"], axis=1)
    model.output(scores, "float32", (1, 2, 4, 4))
    document = Document(model.build())
    before = text_of(import_model(model.build()).module)
    assert [_operator(line) for line in before.splitlines() if "real_conv2d" in line or "relu" in line] == [
        "%4 = qnn.real_conv2d(%3, %2, const<2xf32>)",
        "%6 = nn.relu(%5)",
    ]
    planned = plan(document)
    assert planned.real == {"Softmax → scores": "quantizing this operator is not supported"}
    types = dict.fromkeys(planned.observed, QuantizedType("uint8", (0.25,)))
    rewrite(document, planned, Form({**types, "x": QuantizedType("uint8", (0.5,), (128,))}))
    lines = text_of(import_model(document.serialize()).module).splitlines()
    assert lines[0] == "!0 = !quant.uniform<u8:f32, 0.5:128>"
    assert lines[3] == "!3 = !quant.uniform<u8:f32, 0.25>"
    assert [line.split(" : ")[0].strip() for line in lines[6:13] if "conv2d" not in line] == [
        "%1 = qnn.quantize(%0) {out_type = !0}",
        "%2 = permute_dims(%1) {axes = [0, 2, 3, 1]}",
        "%4 = qnn.requantize(%3) {in_type = !2, out_type = !3}",
        "%5 = permute_dims(%4) {axes = [0, 3, 1, 2]}",
        "%6 = qnn.add(%1, %5) {lhs_type = !0, rhs_type = !3, out_type = !3}",
        "%7 = qnn.dequantize(%6) {in_type = !3}",
    ]
    assert _operator(lines[8]) == "%3 = qnn.conv2d(%2, const<2x1x1x2xi8>, const<2xi32>)"
    rest = "\n".join(lines[13:])
    assert "qnn.real_exp" in rest, "softmax stays in float32"
    assert "quantize" not in rest.replace("Softmax", "")


def _operator(line: str) -> str:
    return line.strip().split(" {")[0].split(" : ")[0]


def test_a_stored_output_keeps_its_name() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.output(model.node("Sigmoid", ["x"], ["y"]), "float32")
    file, twins = quantized(model.build())
    assert [(each.op_type, *each.outputs) for each in read_model(file).operators] == [
        ("QuantizeLinear", "x_quantized"),
        ("DequantizeLinear", "x_dequantized"),
        ("Sigmoid", "y_real"),
        ("QuantizeLinear", "y_quantized"),
        ("DequantizeLinear", "y"),
    ]
    assert {name: (pair.real, pair.dequantized) for name, pair in twins.items()} == {
        "x": ("x", "x_dequantized"),
        "y": ("y_real", "y"),
    }


def test_a_constant_addend_is_stored_too() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.output(model.node("Add", ["x", model.constant([1, -1, 0.5, 3], "float32")]), "float32")
    covered = report(import_model(quantized(model.build())[0]).module)
    assert all(each.get("boundary") for each in covered["floating"])


def test_weights_have_a_scale_for_each_channel_even_of_zeros() -> None:
    weights = np.array([[1.27, 0], [0, 0], [-2.54, 1]], np.float32)
    np.testing.assert_allclose(weight_scales(weights, 0, 0.5, None), [0.01, 1, 0.02], rtol=1e-6)
    np.testing.assert_allclose(weight_scales(weights, 1, 0.5, None), [0.02, 1 / 127], rtol=1e-6)


def test_a_bias_much_larger_than_the_weights_fits_32_bits() -> None:
    """Batch normalization can almost disable a channel, whose weights are then tiny."""
    weights, bias = np.full((1, 1), 1e-12, np.float32), np.array([5], np.float32)
    (scale,) = weight_scales(weights, 0, 0.01, bias)
    assert abs(5 / (0.01 * scale)) == pytest.approx(1 << 30)


def test_an_old_operator_set_is_refused() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.output(model.node("Sigmoid", ["x"]), "float32")
    document = Document(model.build(12))
    with pytest.raises(Unsupported, match="operator set 12"):
        rewrite(document, plan(document), Form({"x": QuantizedType("uint8", (1.0,))}))


def test_a_float_operator_after_a_layer_reads_its_stored_result() -> None:
    """If the operator read the layer's float result, the layer would be computed in float."""
    model = OnnxBuilder()
    x = model.input("x", "float32", [1, 3, 4, 4])
    for _ in range(2):
        x = model.node("HardSwish", [model.node("Conv", [x, model.constant(np.ones((3, 3, 1, 1)), "float32")])])
    model.output(x, "float32")
    covered = report(import_model(quantized(model.build())[0]).module)
    assert covered["integer_percent"] == 100
