"""The names and types of a model's inputs and outputs as clients see them."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.tflite import import_model
from service.core.models.signature import ModelSignature, Quantization, TensorSpec
from tests.support import tflite_models as models
from tests.support.tflite_builder import ModelBuilder, Quant


def signature(
    names: tuple[str, str, str, str] = ("a", "b", "c", "d"),
    signatures: dict[str, tuple[list[str], list[str]]] | None = None,
) -> ModelSignature:
    """Returns the signature of a model with two inputs and two outputs, computed by RELU. `signatures` maps keys to the
    names of the inputs and outputs.
    """
    builder = ModelBuilder()
    a, b, c, d = (builder.tensor(name, (1, 4), np.int8, Quant(0.5, -1)) for name in names)
    builder.operator("RELU", [a], [c])
    builder.operator("RELU", [b], [d])
    for key, (inputs, outputs) in (signatures or {}).items():
        builder.signature(dict(zip(inputs, (a, b), strict=False)), dict(zip(outputs, (c, d), strict=False)), key)
    return import_model(builder.build([a, b], [d, c])).signature


def names(of: ModelSignature) -> tuple[list[str], list[str]]:
    return [spec.name for spec in of.inputs], [spec.name for spec in of.outputs]


def test_inputs_and_outputs_are_in_the_files_order_with_tensor_names() -> None:
    assert names(signature()) == (["a", "b"], ["d", "c"])


def test_types_shapes_and_quantization() -> None:
    assert signature().inputs[0] == TensorSpec("a", "INT8", (1, 4), Quantization(0.5, -1))


def test_names_of_the_files_signature_are_preferred() -> None:
    assert names(signature(signatures={"serving_default": (["image", "mask"], ["label", "box"])})) == (
        ["image", "mask"],
        ["box", "label"],
    )


def test_serving_default_is_preferred_to_other_signatures() -> None:
    keys = {"other": (["i", "j"], ["k", "l"]), "serving_default": (["p", "q"], ["r", "s"])}
    assert names(signature(signatures=keys))[0] == ["p", "q"]


def test_a_signature_that_leaves_out_an_output_is_ignored() -> None:
    assert names(signature(signatures={"serving_default": (["image"], ["label", "box"])})) == (["a", "b"], ["d", "c"])


def test_equal_names_are_made_unique() -> None:
    assert names(signature(("x", "x", "x", "x"))) == (["x", "x_1"], ["x", "x_1"])


def test_missing_names_are_generated() -> None:
    assert names(signature(("", "", "", ""))) == (["input_0", "input_1"], ["output_0", "output_1"])


def test_control_characters_are_replaced() -> None:
    assert names(signature(("a\n\x1b[31m", "b", "c", "d")))[0][0] == "a__[31m"


def test_a_float_input_has_no_quantization() -> None:
    data = models.quantize_model((2, 3), np.float32, None, np.uint8, Quant(0.5, 3))
    (spec,) = import_model(data).signature.inputs
    assert spec == TensorSpec("x", "FP32", (2, 3), None)
