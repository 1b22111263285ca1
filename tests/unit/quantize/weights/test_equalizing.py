"""The channels of adjacent layers are scaled to equal ranges, and the model computes the same function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.file.document import Document
from service.quantize.weights.equalizing import equalize
from tests.support.examples import examples
from tests.support.onnx_builder import OnnxBuilder

SHAPE = (1, 4, 8, 8)


def network(seed: int, bias: bool = True, between: str = "Relu", groups: int = 8) -> bytes:
    """Returns a network of a grouped and two plain convolutions, pools and two dense layers. The ranges of its channels
    are very different.
    """
    rng, model = np.random.default_rng(seed), OnnxBuilder()

    def weighted(op_type: str, x: str, shape: tuple[int, ...], channels: int, **attributes: Any) -> str:
        axis = 0 if op_type == "Conv" or attributes.get("transB") else 1
        ranges = 10.0 ** rng.uniform(-2, 1, shape[axis])
        weights = np.moveaxis(np.moveaxis(rng.normal(0, 1, shape), axis, -1) * ranges, -1, axis)
        operands = [x, model.constant(weights, "float32")]
        if bias and op_type != "MatMul":
            operands.append(model.constant(rng.normal(0, 1, channels), "float32"))
        return model.node(op_type, operands, **attributes)

    x = model.input("x", "float32", SHAPE)
    x = model.node(between, [weighted("Conv", x, (8, 4, 3, 3), 8)])
    x = model.node("Relu", [weighted("Conv", x, (16, 8 // groups, 3, 3), 16, group=groups, pads=[1] * 4)])
    x = weighted("Conv", model.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2]), (6, 16, 1, 1), 6)
    x = model.node("Flatten", [model.node("AveragePool", [model.node("Relu", [x])], kernel_shape=[2, 2])])
    x = model.node("LeakyRelu", [weighted("Gemm", x, (10, 24), 10, transB=1)])
    x = weighted("MatMul", x, (10, 5), 5)
    model.output(weighted("Gemm", x, (5, 3), 3), "float32")
    return model.build(13)


def answer(file: bytes, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(oracle.run(import_model(file).module, get_mode(ONNXRUNTIME), [x])[0])


def ranges(document: Document, index: int, axis: int) -> np.ndarray[Any, Any]:
    layers = [node for node in document.nodes if node.op_type in ("Conv", "Gemm", "MatMul")]
    weights = document.constants[layers[index].inputs[1]]
    return np.asarray(np.abs(weights).max(axis=tuple(at for at in range(weights.ndim) if at != axis)))


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from([1, 2, 8]))
def test_the_function_is_unchanged(seed: int, bias: bool, groups: int) -> None:
    file = network(seed, bias, groups=groups)
    document = Document(file)
    assert equalize(document) == 5
    x = np.random.default_rng(seed).normal(0, 1, SHAPE).astype(np.float32)
    before, after = answer(file, x), answer(document.serialize(), x)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5 * np.abs(before).max())  # sums round differently


def test_both_sides_of_a_channel_have_the_same_range() -> None:
    document = Document(network(0, groups=1))
    assert (ranges(document, 0, 0) / ranges(document, 1, 1)).std() > 0.1
    equalize(document)
    np.testing.assert_allclose(ranges(document, 0, 0), ranges(document, 1, 1), rtol=0.05)
    np.testing.assert_allclose(ranges(document, 1, 0), ranges(document, 2, 1), rtol=0.05)


@pytest.mark.parametrize("between", ["Sigmoid", "HardSwish"])
def test_a_pair_is_joined_only_by_operators_that_scale(between: str) -> None:
    document = Document(network(0, between=between))
    assert equalize(document) == 4


def test_results_with_other_readers_and_shared_weights_are_unchanged() -> None:
    model, rng = OnnxBuilder(), np.random.default_rng(0)
    shared = model.constant(rng.normal(0, 1, (4, 4, 1, 1)), "float32")
    x = model.node("Conv", [model.input("x", "float32", SHAPE), shared])
    y = model.node("Conv", [x, shared])
    z = model.node("Conv", [y, model.constant(rng.normal(0, 1, (4, 4, 1, 1)), "float32")])
    last = model.node("Conv", [z, model.constant(rng.normal(0, 1, (4, 4, 1, 1)), "float32")])
    model.output(model.node("Add", [z, last]), "float32")
    document = Document(model.build())
    assert equalize(document) == 0


def test_a_channel_of_zeros_is_unchanged() -> None:
    model, weights = OnnxBuilder(), np.ones((2, 4, 1, 1))
    weights[0] = 0
    x = model.node("Conv", [model.input("x", "float32", SHAPE), model.constant(weights, "float32")])
    model.output(model.node("Conv", [x, model.constant(np.full((1, 2, 1, 1), 4.0), "float32")]), "float32")
    document = Document(model.build())
    assert equalize(document) == 1
    np.testing.assert_allclose(ranges(document, 0, 0), [0, 2])
    np.testing.assert_allclose(ranges(document, 1, 1), [4, 2])
