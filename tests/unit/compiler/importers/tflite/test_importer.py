"""The form to which operators are converted. `tests/conformance` compares their results with LiteRT's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from ai_edge_litert import schema_py_generated as schema
from tvm import relax

from service.compiler.importers.tflite import import_model
from service.compiler.qnn.operation import value_of
from service.core.errors import MalformedModel, OctetError, Unsupported
from tests.support import tflite_models as models
from tests.support.operator_calls import calls, names
from tests.support.tflite_builder import ModelBuilder, Quant, serialize
from tests.support.tflite_catalog import BIAS, DENSE, MODELS, PER_AXIS, PER_AXIS_3, WEIGHTS, X8, X_U8, Y8


@pytest.mark.parametrize("name", MODELS)
def test_module_is_well_formed_and_survives_a_round_trip(name: str) -> None:
    module = import_model(MODELS[name]()).module
    relax.analysis.well_formed(module)  # raises an error if it is not well-formed
    tvm.ir.assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(module)), module)


@pytest.mark.parametrize(("older", "newer"), [(0, 18), (18, 18), (18, 0), (18, 1)])
def test_operator_code_is_the_larger_of_its_two_fields(older: int, newer: int) -> None:
    """AI Edge Quantizer leaves the older field 0. Writers from before 2020 write only the older field."""
    multiplication = schema.ModelT.InitFromPackedBuf(models.binary_model("MUL", (1, 4), (1, 4), np.int8, X8, Y8, X8), 0)
    (code,) = multiplication.operatorCodes
    code.deprecatedBuiltinCode, code.builtinCode = older, newer
    assert names(import_model(serialize(multiplication))) == ["qnn.mul"]


@pytest.mark.parametrize("name", MODELS)
def test_module_is_the_same_every_time(name: str) -> None:
    data = MODELS[name]()
    assert tvm.ir.save_json(import_model(data).module) == tvm.ir.save_json(import_model(data).module)


def test_values_have_operator_and_tensor_names() -> None:
    script = import_model(MODELS["conv int8"]()).module.script()
    assert "CONV_2D_0_accumulate_y" in script
    assert "CONV_2D_0_y" in script


def test_every_operator_is_reported_before_its_conversion() -> None:
    reported: list[tuple[str, str]] = []
    import_model(MODELS["fully connected flattened"](), at=lambda op, tensor: reported.append((op, tensor)))
    assert reported == [("FULLY_CONNECTED #0", "y")]


def test_weights_shared_by_operators_are_one_constant() -> None:
    imported = import_model(shared_weights(convolutions=3))
    weights = [value.args[1] for name, value in calls(imported) if name == "qnn.conv2d"]
    assert len(weights) == 3
    assert all(weight.same_as(weights[0]) for weight in weights)


def test_computed_weights_are_not_shared() -> None:
    """The tensors have the same shape, like two transposed matrices, but their elements are not in a buffer of the
    file.
    """
    builder, matrices = ModelBuilder(), [np.arange(4, dtype=np.int8), -np.arange(4, dtype=np.int8)]
    x, shape = builder.tensor("x", (1, 2), np.int8, X8), builder.constant("shape", np.array([2, 2], np.int32))
    outputs = [builder.tensor(f"y{i}", (1, 2), np.int8, Y8) for i in range(2)]
    for i, matrix in enumerate(matrices):
        weights = builder.tensor(f"w{i}", (2, 2), np.int8, Quant(0.02))
        builder.operator("RESHAPE", [builder.constant(f"k{i}", matrix, Quant(0.02)), shape], [weights])
        builder.operator("FULLY_CONNECTED", [x, weights, -1], [outputs[i]], schema.FullyConnectedOptionsT())
    imported = import_model(builder.build([x], outputs))
    found = [value_of(value.args[1]) for name, value in calls(imported) if name == "qnn.dense"]
    np.testing.assert_array_equal(found, [matrix.reshape(2, 2) for matrix in matrices])


def test_constants_that_add_up_to_more_than_the_file_are_refused() -> None:
    """Many tensors of different shapes share one buffer, and each would become a copy of it."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 1), np.int8, X8)
    builder.constant("k", np.zeros(1 << 18, np.int8), X8)
    outputs = []
    for i in range(17):
        builder.graph.tensors.append(
            schema.TensorT(
                shape=[1 << i, (1 << 18) >> i],
                type=schema.TensorType.INT8,
                buffer=1,
                name=f"k{i}",
                quantization=builder.graph.tensors[1].quantization,
            )
        )
        constant = len(builder.graph.tensors) - 1
        outputs.append(builder.tensor(f"y{i}", (1 << i, (1 << 18) >> i), np.int8, Y8))
        builder.operator("ADD", [x, constant], [outputs[-1]], schema.AddOptionsT())
    with pytest.raises(MalformedModel, match="constants add up"):
        import_model(builder.build([x], outputs))


def shared_weights(convolutions: int) -> bytes:
    builder = ModelBuilder()
    w, b = builder.constant("w", WEIGHTS[:3], Quant(0.02)), builder.constant("b", BIAS[:3], Quant(0.001))
    tensors = [builder.tensor(f"t{i}", (1, 8, 8, 3), np.int8, X8) for i in range(convolutions + 1)]
    for i in range(convolutions):
        options = schema.Conv2DOptionsT(strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
        builder.operator("CONV_2D", [tensors[i], w, b], [tensors[i + 1]], options)
    return builder.build([tensors[0]], [tensors[-1]])


def bent(data: bytes, bend: Callable[[Any], None]) -> bytes:
    """Returns the file after `bend` has changed LiteRT's object for the model."""
    model = schema.ModelT.InitFromPackedBuf(data)
    bend(model)
    return serialize(model)


def option(name: str, value: Any) -> Callable[[Any], None]:
    return lambda model: setattr(model.subgraphs[0].operators[0].builtinOptions, name, value)


def tensor(index: int, field: str, value: Any) -> Callable[[Any], None]:
    return lambda model: setattr(model.subgraphs[0].tensors[index], field, value)


def no_options(model: Any) -> None:
    model.subgraphs[0].operators[0].builtinOptions = None
    model.subgraphs[0].operators[0].builtinOptionsType = 0


def other_options(model: Any) -> None:
    model.subgraphs[0].operators[0].builtinOptions = schema.AddOptionsT()
    model.subgraphs[0].operators[0].builtinOptionsType = schema.BuiltinOptions.AddOptions


def integers(values: list[int]) -> Callable[[Any], None]:
    """Returns a `bend` function that writes int32 values into the first constant."""
    return lambda model: setattr(model.buffers[1], "data", np.array(values, np.int32).view(np.uint8))


def zero_point(index: int, value: int) -> Callable[[Any], None]:
    return lambda model: setattr(model.subgraphs[0].tensors[index].quantization, "zeroPoint", [value])


# In the models with one operator, tensor 0 is the input, tensor 1 is the output, and the others are constants.
CASES: list[tuple[str, Callable[[Any], None], type[OctetError], str]] = [
    ("conv int8", no_options, MalformedModel, "CONV_2D #0 has stride_h 0; it must be at least 1"),
    ("conv int8", other_options, MalformedModel, "CONV_2D #0 has stride_h 0; it must be at least 1"),
    ("conv int8", option("strideH", 0), MalformedModel, "stride_h 0; it must be at least 1"),
    ("conv int8", option("strideW", -1), MalformedModel, "stride_w -1"),
    ("conv int8", option("dilationHFactor", 0), MalformedModel, "dilation_h_factor 0"),
    ("conv int8", option("padding", 7), MalformedModel, "padding scheme 7"),
    ("conv int8", option("fusedActivationFunction", 4), Unsupported, "fused activation TANH"),
    ("conv int8", option("fusedActivationFunction", 77), Unsupported, "fused activation number 77"),
    ("conv int8", option("dilationHFactor", 1 << 29), Unsupported, "pads its input to"),
    ("conv int8", tensor(0, "shape", [1, 8, 8, 4]), MalformedModel, "4 channels, but its filters have 3"),
    ("conv int8", tensor(0, "shape", [8, 8, 3]), MalformedModel, r"not \[N, H, W, C\]"),
    ("conv int8", tensor(0, "quantization", None), MalformedModel, "which has no quantization"),
    ("conv int8", tensor(2, "quantization", None), MalformedModel, "weights without quantization"),
    ("conv int8", tensor(2, "buffer", 0), MalformedModel, "weights is read before any operator computes it"),
    ("conv int8", tensor(3, "shape", [2, 2]), MalformedModel, r"2 scales|4 scales for the shape"),
    ("conv int8 dilated", zero_point(2, 1), Unsupported, "int8 weights with a zero point other than 0"),
    ("conv int8 dilated", zero_point(3, 1), MalformedModel, "bias with a zero point other than 0"),
    ("conv int8 valid strided relu6", option("dilationHFactor", 9), MalformedModel, "does not fit|computes a tensor"),
    ("conv int8", tensor(2, "type", schema.TensorType.UINT8), MalformedModel, "uint8 weights for an input of int8"),
    ("depthwise int8", tensor(0, "shape", [1, 8, 8, 3]), MalformedModel, "4 filters for 3 channels"),
    ("fully connected int8", option("weightsFormat", 1), Unsupported, "shuffled format"),
    (
        "fully connected int8",
        tensor(0, "shape", [3, 5]),
        MalformedModel,
        r"input of shape \[3, 5\], but its weights have rows of 16",
    ),
    (
        "fully connected keep dims",
        tensor(0, "shape", [2, 6, 8]),
        MalformedModel,
        r"input of shape \[2, 6, 8\], but its weights have rows",
    ),
    ("add uint8 relu", tensor(0, "shape", [3, 7]), MalformedModel, "do not broadcast"),
    ("concatenation int8", option("axis", 4), MalformedModel, "axis 4, but its input has 4 dimensions"),
    ("concatenation int8", option("fusedActivationFunction", 1), Unsupported, "which its kernel refuses"),
    ("concatenation int8", zero_point(0, 5), Unsupported, "joins int8 inputs whose scales differ"),
    ("concatenation int8", tensor(1, "shape", [1, 3, 2, 1]), MalformedModel, "cannot join shapes"),
    ("concatenation int8", tensor(1, "shape", [1, 3, 2]), MalformedModel, "cannot join shapes"),
    ("average pool int8", option("filterHeight", 0), MalformedModel, "filter_height 0"),
    ("average pool int8", option("filterHeight", 8), MalformedModel, "does not fit|computes a tensor"),
    ("average pool int8", zero_point(1, 0), Unsupported, "which has another quantization"),
    ("softmax int8", option("beta", 0.0), MalformedModel, "beta 0.0"),
    ("softmax int8", option("beta", float("nan")), MalformedModel, "beta nan"),
    ("softmax int8", zero_point(1, 0), Unsupported, "its kernel writes scale 1/256"),
    (
        "reshape",
        integers([5, -1]),
        MalformedModel,
        "cannot reshape",
    ),
    (
        "reshape",
        integers([-1, -1]),
        MalformedModel,
        "cannot reshape",
    ),
    (
        "reshape",
        integers([0, -1]),
        MalformedModel,
        "cannot reshape",
    ),
    (
        "squeeze all",
        tensor(1, "type", schema.TensorType.INT8),
        MalformedModel,
        "computes uint8, but its output is int8",
    ),
    ("squeeze", option("squeezeDims", [3]), MalformedModel, r"cannot remove the axes \[3\]"),
    ("squeeze", option("squeezeDims", [4]), MalformedModel, "axis 4, but its input has 4 dimensions"),
    (
        "pad int8",
        integers([-1] * 8),
        MalformedModel,
        "negative",
    ),
    (
        "pad int8",
        integers([1 << 30] * 8),
        Unsupported,
        "more than 2 GiB",
    ),
    (
        "pad int8",
        tensor(2, "type", schema.TensorType.FLOAT32),
        MalformedModel,
        "has float32 for its input 1, not int32",
    ),
    (
        "mean int8",
        integers([1, 4]),
        MalformedModel,
        "has axis",
    ),
]


@pytest.mark.parametrize(("name", "bend", "kind", "message"), CASES)
def test_refused(name: str, bend: Callable[[Any], None], kind: type[OctetError], message: str) -> None:
    data = bent(MODELS[name](), bend)
    with pytest.raises(kind, match=message) as caught:
        import_model(data)
    assert caught.value.stage == "import"
    assert caught.value.tensor


def test_weights_per_axis_along_another_axis_are_malformed() -> None:
    weights = np.zeros((4, 4, 4, 4), np.int8)
    data = models.conv2d_model((1, 8, 8, 4), weights, BIAS, X8, PER_AXIS_3, Y8)
    with pytest.raises(MalformedModel, match="along dimension 3, not 0"):
        import_model(data)


def test_uint8_weights_per_axis_are_malformed() -> None:
    data = models.conv2d_model((1, 8, 8, 3), WEIGHTS.view(np.uint8), BIAS, X_U8, PER_AXIS, X_U8)
    with pytest.raises(MalformedModel, match="uint8 weights quantized per axis"):
        import_model(data)


def test_weights_that_are_an_input_are_unsupported() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 5, 5, 3), np.int8, X8)
    w, y = builder.tensor("w", (4, 1, 1, 3), np.int8, Quant(0.02)), builder.tensor("y", (1, 5, 5, 4), np.int8, Y8)
    builder.operator("CONV_2D", [x, w], [y], schema.Conv2DOptionsT(strideH=1, strideW=1))
    with pytest.raises(Unsupported, match="but it must be constant") as caught:
        import_model(builder.build([x, w], [y]))
    assert caught.value.tensor == "w"


def test_a_bias_with_another_scale_is_malformed_if_litert_refuses_it() -> None:
    data = models.fully_connected_model((2, 16), DENSE, BIAS, X8, Quant(0.02), Y8)
    with pytest.raises(MalformedModel, match="bias with scale"):
        import_model(bent(data, lambda model: setattr(model.subgraphs[0].tensors[3].quantization, "scale", [0.5])))
