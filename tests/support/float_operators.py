"""Small float networks of one operator each, for every operator that quantization supports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.onnx_builder import OnnxBuilder

SHAPE = (1, 4, 6, 6)
Make = Callable[[OnnxBuilder, np.random.Generator, str], str]


def weights(model: OnnxBuilder, rng: np.random.Generator, *shape: int) -> str:
    return model.constant(rng.normal(0, 0.5, shape), "float32")


def node(op_type: str, **attributes: Any) -> Make:
    return lambda model, rng, x: model.node(op_type, [x], **attributes)


def with_integers(op_type: str, *values: list[int], **attributes: Any) -> Make:
    """Returns the function that adds an operator whose other operands are int64 constants."""
    return lambda model, rng, x: model.node(
        op_type, [x, *(model.constant(each, "int64") for each in values)], **attributes
    )


def of_two(op_type: str, **attributes: Any) -> Make:
    def make(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
        return model.node(op_type, [x, convolution()(model, rng, x)], **attributes)

    return make


def convolution(groups: int = 1, bias: bool = True, **attributes: Any) -> Make:
    def make(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
        operands = [x, weights(model, rng, 4, 4 // groups, 3, 3), *([weights(model, rng, 4)] if bias else [])]
        return model.node("Conv", operands, group=groups, pads=[1] * 4, kernel_shape=[3, 3], **attributes)

    return make


def transposed(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    operands = [x, weights(model, rng, 4, 3, 2, 2), weights(model, rng, 3)]
    return model.node("ConvTranspose", operands, strides=[2, 2], kernel_shape=[2, 2])


def flat(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    return model.node("Flatten", [x])


def gemm(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    operands = [flat(model, rng, x), weights(model, rng, 5, 144), weights(model, rng, 5)]
    return model.node("Gemm", operands, transB=1)


def matmul(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    return model.node("MatMul", [x, weights(model, rng, 6, 5)])


def attention(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    """Adds attention to the model. Both of its products have two computed operands."""
    keys = model.node("Transpose", [matmul(model, rng, x)], perm=[0, 1, 3, 2])
    scores = model.node("MatMul", [matmul(model, rng, x), keys])
    return model.node("MatMul", [model.node("Softmax", [scores], axis=-1), matmul(model, rng, x)])


def split(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    one = model.node("Split", [x, model.constant([1, 3], "int64")], ["one", "three"], axis=1)
    return model.node("Concat", ["three", one], axis=1)


def resized(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    return model.node("Resize", [x, "", model.constant([1, 1, 2, 2], "float32")], mode="nearest")


def interpolated(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    scales = model.constant([1, 1, 2, 2], "float32")
    return model.node("Resize", [convolution()(model, rng, x), "", scales], mode="linear")


def product(model: OnnxBuilder, rng: np.random.Generator, x: str) -> str:
    return model.node("Mul", [x, weights(model, rng, 1, 4, 1, 1)])


CASES: dict[str, Make] = {
    "Abs": node("Abs"),
    "Add": of_two("Add"),
    "AveragePool": node("AveragePool", kernel_shape=[3, 3], strides=[2, 2]),
    "Concat": of_two("Concat", axis=1),
    "Conv": convolution(),
    "ConvTranspose": transposed,
    "DepthToSpace": node("DepthToSpace", blocksize=2),
    "Elu": node("Elu"),
    "Erf": node("Erf"),
    "Exp": node("Exp"),
    "Flatten": flat,
    "Gelu": node("Gelu"),
    "Gemm": gemm,
    "GlobalAveragePool": node("GlobalAveragePool"),
    "GlobalMaxPool": node("GlobalMaxPool"),
    "HardSigmoid": node("HardSigmoid"),
    "HardSwish": node("HardSwish"),
    "LeakyRelu": node("LeakyRelu", alpha=0.2),
    "MatMul": matmul,
    "MaxPool": node("MaxPool", kernel_shape=[2, 2]),
    "Mul": product,
    "Neg": node("Neg"),
    "Pad": with_integers("Pad", [0, 0, 1, 1, 0, 0, 1, 1]),
    "ReduceMean": with_integers("ReduceMean", [1]),
    "Reshape": with_integers("Reshape", [1, 6, 4, 6]),
    "Resize": resized,
    "Sigmoid": node("Sigmoid"),
    "Slice": with_integers("Slice", [1], [5], [2]),
    "Softplus": node("Softplus"),
    "SpaceToDepth": node("SpaceToDepth", blocksize=2),
    "Split": split,
    "Sqrt": lambda model, rng, x: model.node("Sqrt", [model.node("Relu", [convolution()(model, rng, x)])]),
    "Squeeze": with_integers("Squeeze", [0]),
    "Sub": of_two("Sub"),
    "Tanh": node("Tanh"),
    "Transpose": node("Transpose", perm=[0, 2, 3, 1]),
    "Unsqueeze": with_integers("Unsqueeze", [0]),
}
MORE: dict[str, Make] = {
    "attention": attention,
    "depthwise": convolution(groups=4),
    "interpolation": interpolated,
    "no bias": convolution(bias=False, strides=[2, 2]),
    "relu": lambda model, rng, x: model.node("Relu", [convolution()(model, rng, x)]),
}
# Operators whose networks contain sums of products, possibly to compute an operand.
WITH_SUMS = {"Add", "Concat", "Conv", "ConvTranspose", "Gemm", "MatMul", "Sqrt", "Sub", *MORE}


def network(make: Make, seed: int) -> bytes:
    """Returns a network `x` -> `y` with the operator between a pool and a concatenation, so that operand and result are
    quantized.
    """
    rng, model = np.random.default_rng(seed), OnnxBuilder()
    x = model.input("x", "float32", SHAPE)
    inner = make(model, rng, model.node("AveragePool", [x], kernel_shape=[1, 1]))
    model.output(model.node("Concat", [inner, inner], ["y"], axis=0), "float32")
    return model.build(20)
