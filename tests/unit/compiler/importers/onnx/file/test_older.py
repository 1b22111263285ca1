"""Operators of older operator sets: their attributes become inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.onnx.file.older import modern
from service.compiler.importers.onnx.importer import import_model
from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.qdq import Operator
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import MalformedModel
from tests.support.onnx_builder import OnnxBuilder, value_info
from tests.support.onnx_reference import Reference

RNG = np.random.default_rng(0)


def operator(op_type: str, **attributes: object) -> Operator:
    return Operator(3, op_type, ("x",), ("y",), attributes)


def test_attributes_become_constant_inputs() -> None:
    constants: dict[str, Tensor] = {}
    result = modern(operator("Slice", starts=(0, 1), ends=(2, 3)), 9, constants)
    starts, ends = (constants[name].data for name in result.inputs[1:])
    np.testing.assert_array_equal([starts, ends], [[0, 1], [2, 3]])
    assert result.attributes == {}


def test_later_operator_sets_are_unchanged() -> None:
    given = operator("TopK", k=3)
    assert modern(given, 10, {}) is given


def test_a_new_constant_has_a_unique_name() -> None:
    constants = {"TopK #3/y/k": Tensor("TopK #3/y/k", "int64", (), np.array(1))}
    result = modern(operator("TopK", k=3, axis=1), 9, constants)
    assert [tensor.data.tolist() for tensor in constants.values() if tensor.data is not None] == [1, [3]]
    assert result.inputs[1] in constants
    assert result.attributes == {"axis": 1}


@pytest.mark.parametrize("value", ["text", ("text",), None])
def test_an_attribute_that_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(MalformedModel, match=r"TopK #3 has an attribute k that is not a list of numbers"):
        modern(operator("TopK", k=value), 9, {})


def mean_of_each_element(b: OnnxBuilder) -> None:
    vectors = [RNG.random((3, 4, 4)).astype(np.float32) for _ in range(4)]
    b.node("BatchNormalization", ["x", *map(b.constant, vectors)], ["y"], spatial=0)


def mask_of_dropout(b: OnnxBuilder) -> None:
    b.node("Dropout", ["x"], ["y", "mask"])
    b.output("mask", "float32")


def negative_pads(b: OnnxBuilder) -> None:
    b.node("Pad", ["x"], ["y"], pads=[0, 0, -1, 1, 0, 0, 2, -2], value=1.5)


@pytest.mark.parametrize("opset", [7, 8])
@pytest.mark.parametrize("write", [mean_of_each_element, mask_of_dropout, negative_pads])
def test_an_old_file_gives_the_values_of_onnx_runtime(write: Callable[[OnnxBuilder], None], opset: int) -> None:
    b = OnnxBuilder()
    b.input("x", "float32", [1, 3, 4, 4])
    write(b)
    b.outputs.insert(0, value_info("y", "float32", None))
    data, x = b.build(opset), RNG.random((1, 3, 4, 4)).astype(np.float32)
    results = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [x])
    for result, wanted in zip(results, Reference(data, optimized=True)([x]), strict=True):
        np.testing.assert_array_equal(result, wanted)
        assert result.dtype == wanted.dtype


def network_of_the_first_sets(opset: int) -> bytes:
    """Returns a network in the form of an operator set that ONNX Runtime still has kernels for."""
    b = OnnxBuilder()
    x = b.input("x", "float32", [1, 3, 4, 4])
    x = b.node("Conv", [x, b.constant(RNG.random((4, 3, 3, 3)), "float32")], pads=[1, 1, 1, 1])
    x = b.node("LeakyRelu", [x], alpha=0.25) if opset >= 6 else x
    padded: dict[str, Any] = {"pads" if opset >= 2 else "paddings": [0, 0, 1, 0, 0, 0, 1, 2]}
    x = b.node("MaxPool", [b.node("Pad", [x], **padded)], kernel_shape=[2, 2])
    target: dict[str, Any] = {"shape": [0, -1]} if opset < 5 else {}
    x = b.node("Reshape", [x, *([] if target else [b.constant([0, -1], "int64")])], **target)
    b.node("Concat", [x, x], ["y"], axis=1)
    b.output("y", "float32")
    return b.build(opset)


@pytest.mark.parametrize("opset", range(2, 7))
def test_a_network_of_the_first_sets_gives_the_values_of_onnx_runtime(opset: int) -> None:
    data, x = network_of_the_first_sets(opset), RNG.random((1, 3, 4, 4)).astype(np.float32)
    (result,) = oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [x])
    if opset < 5:  # ONNX Runtime has no kernel of the first Reshape
        expected = Reference(network_of_the_first_sets(6), optimized=False)
        assert result.shape == expected([x])[0].shape
        return
    np.testing.assert_allclose(result, Reference(data, optimized=False)([x])[0], rtol=0, atol=4e-6)


def test_the_first_casts_name_their_type() -> None:
    assert [modern(operator("Cast", to=name), 5, {}).attributes["to"] for name in ("FLOAT", "INT64", "DOUBLE")] == [
        1,
        7,
        11,
    ]


def test_the_first_upsample_has_an_attribute_for_each_axis() -> None:
    constants: dict[str, Tensor] = {}
    result = modern(operator("Upsample", height_scale=2.0, width_scale=3.0, mode="nearest"), 1, constants)
    (scales,) = constants.values()
    assert (result.op_type, result.attributes) == ("Resize", {"mode": "nearest"})
    np.testing.assert_array_equal(scales.data if scales.data is not None else [], [1, 1, 2, 3])
