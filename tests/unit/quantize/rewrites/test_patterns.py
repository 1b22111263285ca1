"""The operators of a network that are quantized, and the reasons why the other operators are not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn.coverage import report
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.passes.simplify import simplify
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import fold_affine, unify
from service.quantize.rewrites.patterns import PATTERNS, Pattern, counted, plan
from service.quantize.rewrites.rewriting import Form, rewrite
from tests.support.float_networks import residual_network
from tests.support.onnx_builder import OnnxBuilder


def network() -> Document:
    document = Document(residual_network())
    fold_affine(document)
    return document


def test_a_network_is_quantized_except_for_its_softmax() -> None:
    planned = plan(network())
    assert Counter(layer.node.op_type for layer in planned.layers) == {
        "Conv": 4,
        "Add": 1,
        "MaxPool": 1,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 1,
    }
    assert planned.real == {"Softmax → scores": "quantizing this operator is not supported"}


def test_activations_are_part_of_the_convolutions_range() -> None:
    document = network()
    results = {layer.result for layer in plan(document).layers if layer.node.op_type == "Conv"}
    made = {node.outputs[0]: node.op_type for node in document.nodes}
    assert sorted(made[name] for name in results if name) == ["Clip", "Conv", "Relu", "Relu"]


def test_the_last_product_is_not_stored_and_pools_share_a_type() -> None:
    planned = plan(network())
    (gemm,) = [layer for layer in planned.layers if layer.node.op_type == "Gemm"]
    assert gemm.result is None
    (pool,) = [layer for layer in planned.layers if layer.node.op_type == "MaxPool"]
    assert planned.tensors[pool.name] == planned.tensors[pool.operands[0]] == pool.operands[0]
    assert pool.name not in planned.observed


def test_operators_that_stay_in_float_are_reported() -> None:
    document = network()
    name = plan(document).layers[1].name
    planned = plan(document, kept=[name])
    assert name not in {layer.name for layer in planned.layers}
    assert planned.real[f"Conv → {name}"] == "it was kept in float"


def test_integers_are_not_quantized() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    shape = model.node("Add", [model.node("Shape", ["x"]), model.constant([0, 0], "int64")])
    model.output(model.node("Reshape", [model.node("Sigmoid", ["x"]), shape]), "float32")
    planned = plan(Document(model.build()))
    assert [layer.node.op_type for layer in planned.layers] == ["Sigmoid", "Reshape"]


def test_products_of_two_computed_matrices_are_quantized_and_computed_biases_are_not() -> None:
    model = OnnxBuilder()
    x = model.input("x", "float32", [4, 4])
    square = model.node("MatMul", [x, x], ["square"])
    model.output(model.node("Gemm", [square, model.constant(np.ones((4, 4)), "float32"), x], ["y"]), "float32")
    planned = plan(Document(model.build()))
    (layer,) = planned.layers
    assert (layer.operands, layer.result) == ({0: "x", 1: "x"}, None), "no quantized layer reads the result"
    assert counted(planned.real) == [("Gemm", "its bias is computed, or not float32", 1)]


def test_following_operators_are_stored_only_between_stored_tensors() -> None:
    model = OnnxBuilder()
    x = model.node("GlobalAveragePool", [model.input("x", "float32", [1, 3, 4, 4])])
    model.output(model.node("GlobalAveragePool", [model.node("HardSwish", [x], ["inner"])]), "float32")
    model.output(model.node("HardSwish", [x], ["outer"]), "float32")
    planned = plan(Document(model.build(14)))
    assert [layer.name for layer in planned.layers if layer.node.op_type == "HardSwish"] == ["inner"]
    assert planned.real == {"HardSwish → outer": "an operand or its result stays in float"}


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing_is_stored_between_convolutions(mode: str) -> None:
    """The result of an interpolation has its own type; other results have the operand's type."""
    model, scales = OnnxBuilder(), np.array([1, 1, 2, 2])
    ones = model.constant(np.ones((3, 3, 1, 1)), "float32")
    x = model.node("Conv", [model.input("x", "float32", [1, 3, 4, 4]), ones])
    y = model.node("Resize", [x, "", model.constant(scales, "float32")], ["resized"], mode=mode)
    model.output(model.node("Conv", [y, ones]), "float32")
    planned = plan(Document(model.build()))
    assert sorted(layer.node.op_type for layer in planned.layers) == ["Conv", "Conv", "Resize"]
    assert planned.tensors["resized"] == (x if mode == "nearest" else "resized")
    assert planned.real == {}


def test_a_pattern_is_added_with_one_line() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 4])
    model.output(model.node("Selu", [model.node("Sigmoid", ["x"])]), "float32")
    document = Document(model.build())
    assert [layer.node.op_type for layer in plan(document).layers] == ["Sigmoid"]
    more = plan(document, {**PATTERNS, "Selu": Pattern()})
    assert [layer.node.op_type for layer in more.layers] == ["Sigmoid", "Selu"]


def test_a_function_of_one_tensor_is_rounded_once() -> None:
    """The parts of a hard swish, with a scale and a shift, are between two convolutions. Together they become a
    table.
    """
    model, rng = OnnxBuilder(), np.random.default_rng(0)
    number = {value: model.constant(value, "float32") for value in (0.0, 3.0, 6.0)}

    def convolution(x: str) -> str:
        return model.node("Conv", [x, model.constant(rng.normal(0, 1, (3, 3, 1, 1)), "float32")])

    x = convolution(model.input("x", "float32", [1, 3, 4, 4]))
    gate = model.node("Clip", [model.node("Add", [x, number[3.0]]), number[0.0], number[6.0]])
    product = model.node("Div", [model.node("Mul", [x, gate]), number[6.0]])
    model.output(convolution(model.node("Add", [product, number[3.0]])), "float32")
    document = Document(model.build())
    unify(document)
    planned = plan(document)
    assert [layer.node.op_type for layer in planned.layers] == ["Conv", "Conv"]
    assert planned.real == {}
    assert len(planned.observed) == 4, "the operand and the result of each layer"
    rewrite(document, planned, Form({name: affine(-1, 3, "uint8") for name in planned.observed}))
    module = import_model(document.serialize()).module
    simplified = simplify(module, get_mode(ONNXRUNTIME))
    assert len(simplified.done["tables made"]) == 1
    assert [each for each in report(simplified.module)["floating"] if not each.get("boundary")] == []


def test_an_activation_that_is_a_range_is_not_part_of_the_next_function() -> None:
    model = OnnxBuilder()
    ones = model.constant(np.ones((3, 3, 1, 1)), "float32")
    x = model.node("Relu", [model.node("Conv", [model.input("x", "float32", [1, 3, 4, 4]), ones])])
    model.output(model.node("Mul", [x, model.constant(2.0, "float32")]), "float32")
    assert [layer.node.op_type for layer in plan(Document(model.build())).layers] == ["Conv", "Mul"]


def _activate(model: OnnxBuilder, x: str, function: str) -> str:
    """Adds a function that no single operator of ONNX computes, or the operator `function`."""
    if function == "SiLU":
        return model.node("Mul", [x, model.node("Sigmoid", [x])])
    return model.node(function, [x])


@pytest.mark.parametrize("function", ["HardSwish", "Elu", "SiLU", "LeakyRelu", "Relu"])
@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool", "MaxPool and Transpose"])
def test_an_activation_and_a_pool_between_convolutions_are_in_integers(function: str, pool: str) -> None:
    model = OnnxBuilder()
    ones = model.constant(np.ones((3, 3, 1, 1)), "float32")
    x = model.node("Conv", [model.input("x", "float32", [1, 3, 4, 4]), ones])
    y = model.node(pool.split()[0], [_activate(model, x, function)], kernel_shape=[2, 2], strides=[2, 2])
    if "Transpose" in pool:
        y = model.node("Transpose", [y], perm=[0, 1, 3, 2])
    model.output(model.node("Conv", [y, ones]), "float32")
    document = Document(model.build(14))
    unify(document)
    planned = plan(document)
    assert planned.real == {}
    rewrite(document, planned, Form({name: affine(-1, 3, "uint8") for name in planned.observed}))
    simplified = simplify(import_model(document.serialize()).module, get_mode(ONNXRUNTIME))
    assert [each for each in report(simplified.module)["floating"] if not each.get("boundary")] == []


def test_a_pool_whose_result_is_not_read_in_integers_stays_in_float() -> None:
    model = OnnxBuilder()
    x = model.node(
        "Conv", [model.input("x", "float32", [1, 3, 4, 4]), model.constant(np.ones((3, 3, 1, 1)), "float32")]
    )
    y = model.node("MaxPool", [model.node("HardSwish", [x], ["activated"])], kernel_shape=[2, 2])
    model.output(y, "float32")
    planned = plan(Document(model.build(14)))
    assert [layer.node.op_type for layer in planned.layers] == ["Conv"]
    assert list(planned.real) == ["HardSwish → activated"]
