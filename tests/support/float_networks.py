"""Small float ONNX networks with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx_builder import OnnxBuilder

SIZE, CLASSES = 16, 10
INPUT = (1, 3, SIZE, SIZE)


def residual_network(seed: int = 0) -> bytes:
    """Returns a network: `image` `[1, 3, 16, 16]` -> `scores` `[1, 10]`.

    It has convolutions with batch normalization, ReLU and ReLU6, a depthwise one, an addition, pools, a dense layer and
    softmax.
    """
    rng, model = np.random.default_rng(seed), OnnxBuilder()

    def convolution(x: str, channels: int, filters: int, kernel: int, groups: int = 1, **attributes: Any) -> str:
        shape = (filters, channels // groups, kernel, kernel)
        weights = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape) * rng.uniform(0.3, 2, (filters, 1, 1, 1))
        operands = [x, model.constant(weights, "float32")]
        pads = [kernel // 2] * 4
        return model.node("Conv", operands, group=groups, pads=pads, kernel_shape=[kernel, kernel], **attributes)

    def normalized(x: str, channels: int) -> str:
        low, high = (0.5, -0.2, -0.3, 0.4), (1.5, 0.2, 0.3, 2)
        rows = [rng.uniform(*ends, channels) for ends in zip(low, high, strict=True)]
        return model.node("BatchNormalization", [x, *(model.constant(row, "float32") for row in rows)])

    x = model.input("image", "float32", INPUT)
    x = model.node("Relu", [normalized(convolution(x, 3, 16, 3, strides=[2, 2]), 16)])
    bounds = model.constant(0.0, "float32"), model.constant(6.0, "float32")
    y = model.node("Clip", [normalized(convolution(x, 16, 16, 3, groups=16), 16), *bounds])
    y = normalized(convolution(y, 16, 16, 1), 16)
    x = model.node("MaxPool", [model.node("Add", [x, y])], kernel_shape=[2, 2], strides=[2, 2])
    x = model.node("Relu", [convolution(x, 16, 32, 3)])
    x = model.node("Flatten", [model.node("GlobalAveragePool", [x])])
    weights, bias = rng.normal(0, 0.3, (CLASSES, 32)), rng.normal(0, 0.3, CLASSES)
    operands = [x, model.constant(weights, "float32"), model.constant(bias, "float32")]
    scores = model.node("Softmax", [model.node("Gemm", operands, transB=1)], ["scores"], axis=-1)
    model.output(scores, "float32", (1, CLASSES))
    return model.build()


def pictures(count: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns normalized random pictures with coarse structure: `[count, 3, 16, 16]`."""
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (count, 3, SIZE // 4, SIZE // 4)).repeat(4, axis=2).repeat(4, axis=3)
    return np.asarray(coarse + rng.normal(0, 0.2, (count, 3, SIZE, SIZE)), np.float32)


def dense_network(seed: int = 0) -> bytes:
    """Returns a network `x` `[1, 6, 40]` -> `y` `[6, 7]`: two matrix products with one operand in common, and a Gemm
    with a bias.
    """
    rng, model = np.random.default_rng(seed), OnnxBuilder()
    x = model.input("x", "float32", (1, 6, 40))
    wide = [model.node("MatMul", [x, model.constant(rng.normal(0, 0.2, (40, 48)), "float32")]) for _ in range(2)]
    y = model.node("Mul", [model.node("Relu", [wide[0]]), model.node("Sigmoid", [wide[1]])])
    y = model.node("Reshape", [y, model.constant([6, 48], "int64")])
    last = [model.constant(rng.normal(0, 0.3, shape), "float32") for shape in ((7, 48), (7,))]
    model.output(model.node("Gemm", [y, *last], ["y"], transB=1), "float32", (6, 7))
    return model.build(17)
