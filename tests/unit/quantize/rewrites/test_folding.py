"""Operators that scale and shift a convolution's result are folded into the convolution. Results change only by
rounding.
"""

from __future__ import annotations

import numpy as np

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import drop_copies, fold_affine, fold_moved_constants, unify
from tests.support.float_networks import pictures, residual_network
from tests.support.onnx_builder import OnnxBuilder

ROUNDING = 2e-6  # probabilities differ by this much, because folding changes the order of float32 sums


def answer(data: bytes) -> np.ndarray:
    return oracle.run(import_model(data).module, get_mode(ONNXRUNTIME), [pictures(1)])[0]


def test_folding_batch_normalization_keeps_the_function() -> None:
    document = Document(residual_network())
    assert fold_affine(document) == 3
    assert "BatchNormalization" not in {node.op_type for node in document.nodes}
    np.testing.assert_allclose(answer(document.serialize()), answer(residual_network()), rtol=0, atol=ROUNDING)


def test_all_operators_that_scale_and_shift_channels_are_folded() -> None:
    """The model has a bias before a normalization, as Paddle writes it, and a bias after a transposed convolution."""
    rng, model = np.random.default_rng(0), OnnxBuilder()

    def row(*shape: int) -> str:
        return model.constant(rng.uniform(0.5, 2, shape), "float32")

    x = model.input("x", "float32", [1, 3, 4, 4])
    for op_type, shape in (("Conv", (5, 3, 1, 1)), ("ConvTranspose", (5, 3, 2, 2))):
        channels = shape[0] if op_type == "Conv" else shape[1]
        x = model.node(op_type, [x, row(*shape)])
        bias = model.node("Reshape", [row(channels), model.constant([1, -1, 1, 1], "int64")])
        x = model.node("Add", [bias, x])
        x = model.node("BatchNormalization", [x, *(row(channels) for _ in range(4))])
        x = model.node("Div", [model.node("Sub", [model.node("Mul", [x, row()]), row(1)]), row(channels, 1, 1)])
    model.output(model.node("Mul", [x, row(5, 1)]), "float32")
    data, document = model.build(), Document(model.build())
    fold_moved_constants(document)
    assert fold_affine(document) == 10
    assert [node.op_type for node in document.nodes] == ["Conv", "ConvTranspose", "Mul"]
    inputs = [rng.normal(0, 1, (1, 3, 4, 4)).astype(np.float32)]
    made = [import_model(each).module for each in (data, document.serialize())]
    before, after = (oracle.run(module, get_mode(ONNXRUNTIME), inputs)[0] for module in made)
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-4)


def test_a_convolution_with_other_readers_is_not_folded() -> None:
    model = OnnxBuilder()
    model.input("x", "float32", [1, 1, 4, 4])
    ones = model.constant(np.ones(1), "float32")
    convolved = model.node("Conv", ["x", model.constant(np.ones((1, 1, 1, 1)), "float32")])
    normalized = model.node("BatchNormalization", [convolved, ones, ones, ones, ones])
    model.output(model.node("Add", [convolved, normalized]), "float32")
    assert fold_affine(Document(model.build())) == 0


def test_copies_of_constants_are_replaced_by_the_constants() -> None:
    """PyTorch's exporter writes equal biases as copies. A copy stays only if it is an output of the model."""
    model = OnnxBuilder()
    model.input("x", "float32", [1, 1, 4, 4])
    weights, bias = model.constant(np.ones((1, 1, 1, 1)), "float32"), model.constant(np.ones(1), "float32")
    copy = model.node("Identity", [model.node("Identity", [bias])])
    convolved = model.node("Conv", [model.node("Identity", ["x"]), weights, copy])
    model.output(model.node("Identity", [convolved], ["y"]), "float32")
    document = Document(model.build())
    drop_copies(document)
    (convolution, last) = document.nodes
    assert convolution.inputs == ("x", weights, bias)
    assert (last.op_type, last.inputs, last.outputs) == ("Identity", (convolved,), ("y",))


def test_differences_and_means_become_operators_with_an_integer_form() -> None:
    model, rng = OnnxBuilder(), np.random.default_rng(0)
    x = model.node("Sub", [model.input("x", "float32", [1, 3, 4, 4]), model.constant(0.5, "float32")])
    y = model.node("Conv", [x, model.constant(rng.normal(0, 1, (2, 3, 1, 1)), "float32")])
    model.output(model.node("ReduceMean", [model.node("Relu", [y])], axes=[-1, 2], keepdims=1), "float32")
    model.output(model.node("ReduceMean", [y], axes=[2, 3], keepdims=0), "float32")
    model.output(model.node("ReduceMean", [x], axes=[2, 3], keepdims=1), "float32")
    data, document = model.build(), Document(model.build())
    unify(document)
    kinds = [node.op_type for node in document.nodes]
    assert kinds == ["Add", "Conv", "Relu", "GlobalAveragePool", "ReduceMean", "ReduceMean"], (
        "the mean of x stays, because x may have any rank"
    )
    inputs = [rng.normal(0, 1, (1, 3, 4, 4)).astype(np.float32)]
    made = [import_model(each).module for each in (data, document.serialize())]
    before, after = (oracle.run(module, get_mode(ONNXRUNTIME), inputs) for module in made)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)
