"""The model's inputs and outputs as clients see them."""

from __future__ import annotations

import pytest

from service.compiler.importers.onnx.importer import import_model
from service.core.errors import InvalidInput, Unsupported
from service.core.models.signature import Quantization
from tests.support.onnx_builder import Dims, OnnxBuilder, message


def model_of(shape: Dims | None) -> bytes:
    model = OnnxBuilder()
    model.input("x", "float32", shape)
    model.output(model.node("Relu", ["x"], ["y"]), "float32")
    return model.build()


def test_an_open_batch_has_size_one() -> None:
    (spec,) = import_model(model_of(["N", 3, 8, 8])).signature.inputs
    assert spec.shape == (1, 3, 8, 8)


@pytest.mark.parametrize("shape", [[1, 3, "H", 8], [1, None], None, [1, 0], [1, -1]])
def test_other_dimensions_need_numbers(shape: Dims | None) -> None:
    with pytest.raises(Unsupported, match="input x"):
        import_model(model_of(shape))


def test_an_input_needs_a_type() -> None:
    model = OnnxBuilder()
    model.inputs.append(message(1, "x"))
    model.output(model.node("Relu", ["x"], ["y"]), "float32")
    with pytest.raises(Unsupported, match="the file gives no type for the input x"):
        import_model(model.build())


def test_open_dimensions_may_be_given() -> None:
    (spec,) = import_model(model_of(["N", 3, "H", "W"]), shapes={"x": (2, 3, 8, 9)}).signature.inputs
    assert spec.shape == (2, 3, 8, 9)


@pytest.mark.parametrize("shapes", [{"x": (1, 4, 8, 8)}, {"x": (1, 3)}, {"y": (1, 3, 8, 8)}, {"x": (0, 3, 8, 8)}])
def test_given_shapes_must_fit_the_file(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(InvalidInput):
        import_model(model_of(["N", 3, "H", "W"]), shapes=shapes)


def test_stored_inputs_and_outputs_have_their_quantization() -> None:
    model = OnnxBuilder()
    x, y = model.quantization(0.5, 3, "uint8"), model.quantization(0.25, 9, "uint8")
    model.input("image", "uint8", [1, 2, 3, 3])
    model.output(model.microsoft("QLinearGlobalAveragePool", ["image", *x, *y]), "uint8")
    signature = import_model(model.build()).signature
    assert signature.inputs[0].quantization == Quantization(0.5, 3)
    assert signature.outputs[0].quantization == Quantization(0.25, 9)


def test_a_given_shape_replaces_a_missing_one() -> None:
    signature = import_model(model_of(None), shapes={"x": [2, 3]}).signature
    assert [spec.shape for spec in (*signature.inputs, *signature.outputs)] == [(2, 3), (2, 3)]
    with pytest.raises(Unsupported, match="the file gives no shape for the input x"):
        import_model(model_of(None))
