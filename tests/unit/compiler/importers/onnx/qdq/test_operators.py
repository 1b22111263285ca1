"""Float operators between conversions are replaced by quantized operators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.onnx.qdq.operators import fuse
from tests.support.onnx_builder import OnnxBuilder

Body = Callable[[OnnxBuilder, str], str]


def fused(body: Body) -> Model:
    """Returns the model of `body`, applied to a dequantized input and then quantized."""
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", (1, 2, 4, 4)), 0.5, 3, "uint8")
    model.output(model.quantized(body(model, x), 0.25, 7, "uint8"), "uint8")
    return fuse(read_model(model.build()))


def kinds(body: Body) -> list[str]:
    return [operator.op_type for operator in fused(body).operators]


def convolved(model: OnnxBuilder, x: str, *bias: str) -> str:
    weights = model.dequantized(model.constant(np.ones((2, 2, 1, 1)), "int8"), 0.25, 0, "int8")
    return model.node("Conv", [x, weights, *bias])


def test_a_convolution_between_conversions_is_quantized() -> None:
    assert kinds(convolved) == ["QLinearConv"]


def test_activations_become_bounds_of_the_output() -> None:
    def clipped(model: OnnxBuilder, x: str) -> str:
        bounds = [model.constant(bound, "float32") for bound in (-1.0, 6.0)]
        return model.node("Clip", [model.node("Relu", [convolved(model, x)]), *bounds])

    (operator,) = fused(clipped).operators
    assert operator.clamp == (0.0, 6.0)


def test_a_value_with_two_readers_stays_real() -> None:
    def read_twice(model: OnnxBuilder, x: str) -> str:
        y = convolved(model, x)
        model.output(model.quantized(y, 0.5, 7, "uint8"), "uint8")
        return y

    assert "octet.StoredConv" in kinds(read_twice)


def test_operators_that_move_elements_move_stored_elements() -> None:
    def moved(model: OnnxBuilder, x: str) -> str:
        return model.node("Flatten", [model.node("Transpose", [x], perm=[0, 2, 3, 1])])

    assert kinds(moved) == ["Transpose", "Flatten", "octet.Requantize"]


def test_quantization_moves_before_operators_that_move_elements() -> None:
    def pooled(model: OnnxBuilder, x: str) -> str:
        return model.node("MaxPool", [convolved(model, x)], kernel_shape=[2, 2])

    assert kinds(pooled) == ["QLinearConv", "MaxPool"]


def test_two_operands_and_more() -> None:
    def joined(model: OnnxBuilder, x: str) -> str:
        total = model.quantized(model.node("Add", [x, x]), 0.5, 1, "uint8")
        return model.node("Concat", [x, model.dequantized(total, 0.5, 1, "uint8")], axis=1)

    assert kinds(joined) == ["com.microsoft.QLinearAdd", "com.microsoft.QLinearConcat"]


def test_a_real_operand_keeps_the_operator_real() -> None:
    def shifted(model: OnnxBuilder, x: str) -> str:
        return model.node("Add", [x, model.constant(1.5, "float32")])

    assert kinds(shifted) == ["DequantizeLinear", "Add", "QuantizeLinear"]


def test_a_real_bias_is_rounded_to_the_accumulators_scale() -> None:
    model = fused(lambda model, x: convolved(model, x, model.constant([1.0, -0.3], "float32")))
    (operator,) = model.operators
    bias = model.constants[operator.inputs[8]].data
    assert bias is not None
    assert bias.tolist() == [8, -2]  # stored in steps of 0.125


def test_a_stored_bias_of_another_scale_keeps_its_value() -> None:
    def biased(model: OnnxBuilder, x: str) -> str:
        return convolved(model, x, model.dequantized(model.constant([4, -8], "int32"), 0.25, 0, "int32"))

    model = fused(biased)
    bias = model.constants[model.operators[0].inputs[8]].data
    assert bias is not None
    assert bias.tolist() == [8, -16]


def test_every_part_of_a_split_is_stored() -> None:
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", (1, 4)), 0.5, 3, "uint8")
    model.node("Split", [x], ["a", "b"], axis=1)
    for part in "ab":
        model.output(model.quantized(part, 0.25, 7, "uint8"), "uint8")
    operators = fuse(read_model(model.build())).operators
    assert [operator.op_type for operator in operators] == ["Split", "octet.Requantize", "octet.Requantize"]


def test_padding_with_zeros_uses_the_zero_point() -> None:
    def padded(model: OnnxBuilder, x: str) -> str:
        return model.node("Pad", [x, model.constant([0, 0, 1, 1, 0, 0, 1, 1], "int64")])

    model = fused(padded)
    assert [operator.op_type for operator in model.operators] == ["Pad", "octet.Requantize"]
    fill = model.constants[model.operators[0].inputs[2]].data
    assert fill is not None
    assert fill.item() == 3


def test_padding_with_other_values_is_real() -> None:
    def padded(model: OnnxBuilder, x: str) -> str:
        widths = model.constant([0, 0, 1, 1, 0, 0, 1, 1], "int64")
        return model.node("Pad", [x, widths, model.constant(1.0, "float32")])

    assert kinds(padded) == ["DequantizeLinear", "Pad", "QuantizeLinear"]


def test_16_bit_values_are_only_stored() -> None:
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "int16", (1, 4)), 0.5, 3, "int16")
    model.output(model.quantized(model.node("Add", [x, x]), 0.25, 7, "int16"), "int16")
    operators = fuse(read_model(model.build(21))).operators
    assert [operator.op_type for operator in operators] == ["DequantizeLinear", "Add", "QuantizeLinear"]


def by_channel(points: list[int], group: int, filters: int = 2) -> list[str]:
    """Returns the operators after fusing a convolution whose two channels have separate scales."""

    def body(model: OnnxBuilder, x: str) -> str:
        pair = [model.constant([0.5, 0.25], "float32"), model.constant(points, "uint8")]
        stored = model.node("QuantizeLinear", [x, *pair], axis=1)
        real = model.node("DequantizeLinear", [stored, *pair], axis=1)
        weights = model.dequantized(model.constant(np.ones((filters, 2 // group, 1, 1)), "int8"), 0.25, 0, "int8")
        return model.node("Conv", [real, weights], group=group)

    return kinds(body)


def test_a_depthwise_convolution_with_a_scale_for_each_channel_is_quantized() -> None:
    made = ["DequantizeLinear", "QuantizeLinear", "octet.StoredConv"]
    assert by_channel([3, 3], group=2) == made
    assert by_channel([3, 3], group=2, filters=4) == made


@pytest.mark.parametrize(("points", "stored"), [([3, 3], True), ([3, 4], False)])
def test_a_convolution_with_scales_per_channel_needs_one_zero_point(points: list[int], stored: bool) -> None:
    model = OnnxBuilder()
    x = model.dequantized(model.input("x", "uint8", (1, 2, 4, 4)), 0.5, 3, "uint8")
    pair = [model.constant([0.5, 0.25], "float32"), model.constant(points, "uint8")]
    clipped = model.node("Relu", [convolved(model, x)])
    model.output(model.node("QuantizeLinear", [clipped, *pair], axis=1), "uint8")
    operators = fuse(read_model(model.build())).operators
    kept = ["octet.StoredConv", "Relu", "QuantizeLinear"]
    assert [operator.op_type for operator in operators] == (kept[:1] if stored else kept)


def test_channels_that_are_summed_need_one_scale() -> None:
    assert "Conv" in by_channel([3, 3], group=1)


def test_channels_with_different_zero_points_are_real() -> None:
    assert "Conv" in by_channel([3, 4], group=2)


def _joined(second: float) -> list[str]:
    def body(model: OnnxBuilder, x: str) -> str:
        y = model.dequantized(model.input("y", "uint8", (1, 2, 4, 4)), second, 3, "uint8")
        weights = model.dequantized(model.constant(np.ones((2, 4, 1, 1)), "int8"), 0.25, 0, "int8")
        return model.node("Conv", [model.node("Concat", [x, y], axis=1), weights])

    return kinds(body)


def test_parts_with_equal_quantization_are_joined_as_stored_values() -> None:
    assert _joined(0.5) == ["Concat", "octet.StoredConv"]
    assert "Conv" in _joined(0.25)


def test_an_8_bit_bias_is_added_to_real_values() -> None:
    """ONNX Runtime's tools store a bias in this form if it is zero. They do not fuse it into a quantized operator."""

    def body(model: OnnxBuilder, x: str) -> str:
        return convolved(model, x, model.dequantized(model.constant([4, -8], "int8"), 0.25, 2, "int8"))

    model = fused(body)
    assert [operator.op_type for operator in model.operators] == ["octet.StoredConv"]
    bias = model.constants[model.operators[0].inputs[6]].data
    assert bias is not None
    assert bias.tolist() == [0.5, -2.5]


@pytest.mark.parametrize(
    ("storage", "other", "kind"),
    [("int8", "int8", "octet.StoredMatMul"), ("uint8", "int8", "octet.StoredMatMul"), ("int8", "uint8", "MatMul")],
)
def test_a_product_of_computed_matrices_is_quantized(storage: str, other: str, kind: str) -> None:
    model = OnnxBuilder()
    x, y = (
        model.dequantized(model.input(name, dtype, (2, 4, 4)), 0.5, 3, dtype)
        for name, dtype in (("x", storage), ("y", other))
    )
    model.output(model.node("MatMul", [x, y]), "float32")
    assert fuse(read_model(model.build())).operators[-1].op_type == kind
