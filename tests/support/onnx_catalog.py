"""ONNX models of one operator each, chosen by a seeded generator, for conformance tests, fuzzing and unit tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from service.core.models.arrays import Array
from tests.support.onnx_builder import OnnxBuilder

Rng = np.random.Generator
Write = Callable[[OnnxBuilder, Rng], None]


def pick(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(0, len(choices)))]


def scale(rng: Rng) -> float:
    return float(np.float32(10.0 ** rng.uniform(-3, -1)))


class Quantized:
    """A random quantized type. Its scale and zero point are constants of the model."""

    def __init__(self, model: OnnxBuilder, rng: Rng, dtype: str) -> None:
        info = np.iinfo(dtype)
        self.dtype, self.scale = dtype, scale(rng)
        middle = (info.min + info.max + 1) // 2
        self.zero_point = int(pick(rng, info.min, middle, rng.integers(info.min, info.max + 1)))
        self.names = model.quantization(self.scale, self.zero_point, dtype)


def storage(rng: Rng) -> str:
    return str(pick(rng, "uint8", "int8"))


class Weights(NamedTuple):
    """Weights: the names of the stored values, the scales and the zero points, and the values of the scales."""

    names: tuple[str, str, str]
    scales: Array


def weights(model: OnnxBuilder, rng: Rng, shape: tuple[int, ...], axis: int, activations: str) -> Weights:
    """Adds random weights. Their type is one that ONNX Runtime supports with the activations: u8s8, u8u8 and s8s8."""
    dtype = "int8" if activations == "int8" else storage(rng)
    info, count = np.iinfo(dtype), shape[axis]
    stored = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    per_axis = bool(rng.integers(0, 2))
    scales = np.array([scale(rng) for _ in range(count)] if per_axis else scale(rng), np.float32)
    points = np.full(scales.shape, 0 if dtype == "int8" else rng.integers(100, 156), dtype)
    return Weights((model.constant(stored), model.constant(scales), model.constant(points)), scales)


def image(rng: Rng) -> tuple[int, int, int, int]:
    return 1, int(pick(rng, 1, 3, 8, 17)), int(rng.integers(5, 12)), int(rng.integers(5, 12))


def window(rng: Rng, shape: tuple[int, ...]) -> dict[str, Any]:
    kernel = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    pads = [int(rng.integers(0, side)) for side in (*kernel, *kernel)]
    return {
        "kernel_shape": list(kernel),
        "strides": [int(rng.integers(1, 3)), int(rng.integers(1, 3))],
        **pick(rng, {"pads": pads}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}),
    }


def qlinear_conv(model: OnnxBuilder, rng: Rng) -> None:
    shape = image(rng)
    groups = int(pick(rng, 1, 1, shape[1]))
    x = Quantized(model, rng, storage(rng))
    attributes = window(rng, shape)
    kernel = tuple(attributes["kernel_shape"])
    filters = groups * int(rng.integers(1, 5))
    w = weights(model, rng, (filters, shape[1] // groups, *kernel), 0, x.dtype)
    y = Quantized(model, rng, x.dtype)
    bias = [model.constant(rng.integers(-5000, 5000, filters), "int32")] if rng.integers(0, 2) else []
    if "pads" in attributes and rng.integers(0, 2) and min(shape[2:]) >= 2 * max(kernel):
        attributes["dilations"] = [2, 2]
    name = model.input("x", x.dtype, shape)
    model.output(
        model.node("QLinearConv", [name, *x.names, *w.names, *y.names, *bias], group=groups, **attributes), x.dtype
    )


def qlinear_matmul(model: OnnxBuilder, rng: Rng) -> None:
    depth, units = int(rng.integers(1, 40)), int(rng.integers(1, 20))
    x = Quantized(model, rng, storage(rng))
    w = weights(model, rng, (depth, units), 1, x.dtype)
    y = Quantized(model, rng, x.dtype)
    name = model.input("x", x.dtype, pick(rng, (3, depth), (2, 3, depth), (1, depth)))
    model.output(model.node("QLinearMatMul", [name, *x.names, *w.names, *y.names]), x.dtype)


def qgemm(model: OnnxBuilder, rng: Rng) -> None:
    depth, units, transposed = int(rng.integers(1, 40)), int(rng.integers(1, 20)), int(rng.integers(0, 2))
    x = Quantized(model, rng, storage(rng))
    w = weights(model, rng, (units, depth) if transposed else (depth, units), 1 - transposed, x.dtype)
    bias = model.constant(rng.integers(-5000, 5000, units), "int32") if rng.integers(0, 2) else ""
    real = bool(rng.integers(0, 2))
    y = [] if real else list(Quantized(model, rng, x.dtype).names)
    name = model.input("x", x.dtype, (int(rng.integers(1, 4)), depth))
    result = model.microsoft("QGemm", [name, *x.names, *w.names, bias, *y], transB=transposed)
    model.output(result, "float32" if real else x.dtype)


def _binary(op_type: str) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        shape = image(rng)
        dtype = storage(rng)
        a, b, c = (Quantized(model, rng, dtype) for _ in range(3))
        other = [1 if rng.integers(0, 3) == 0 else size for size in shape][int(rng.integers(0, 2)) * 2 :]
        shapes = [list(shape), other]
        if rng.integers(0, 2):
            shapes.reverse()
        names = [model.input(name, dtype, sides) for name, sides in zip("ab", shapes, strict=True)]
        operands = [names[0], *a.names, names[1], *b.names, *c.names]
        model.output(model.microsoft(op_type, operands), dtype)

    return write


def qlinear_concat(model: OnnxBuilder, rng: Rng) -> None:
    shape, axis, dtype = list(image(rng)), int(rng.integers(1, 4)), storage(rng)
    y = Quantized(model, rng, dtype)
    parts: list[str] = []
    for index in range(int(rng.integers(1, 4))):
        x = y if rng.integers(0, 3) == 0 else Quantized(model, rng, dtype)
        shape[axis] = int(rng.integers(1, 6))
        parts += [model.input(f"x{index}", dtype, shape), *x.names]
    model.output(model.microsoft("QLinearConcat", [*y.names, *parts], axis=axis), dtype)


def qlinear_average_pool(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = image(rng), storage(rng)
    x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
    name = model.input("x", dtype, shape)
    attributes = window(rng, shape)
    attributes |= {"count_include_pad": int(rng.integers(0, 2))}
    if "pads" in attributes:
        attributes |= {"ceil_mode": int(rng.integers(0, 2))}
    model.output(model.microsoft("QLinearAveragePool", [name, *x.names, *y.names], **attributes), dtype)


def qlinear_global_average_pool(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = image(rng), storage(rng)
    x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
    name = model.input("x", dtype, shape)
    model.output(model.microsoft("QLinearGlobalAveragePool", [name, *x.names, *y.names], channels_last=0), dtype)


def _function(op_type: str, **attributes: Any) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        dtype = storage(rng)
        x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
        name = model.input("x", dtype, (2, 3, 128))
        model.output(model.microsoft(op_type, [name, *x.names, *y.names], **attributes), dtype)

    return write


def qlinear_softmax(model: OnnxBuilder, rng: Rng) -> None:
    dtype, opset = storage(rng), int(pick(rng, 11, 13))
    steps = float(rng.uniform(64, 300))  # with more steps, ONNX Runtime does not use float32 for short rows
    lowest = int(np.iinfo(dtype).min)
    y_names = model.quantization(1 / steps, pick(rng, lowest, rng.integers(lowest, lowest + 100)), dtype)
    shape = pick(rng, (3, 1000), (2, 3, 40), (1, 10), (2, 5, 3, 4))
    name, axis = model.input("x", dtype, shape), int(rng.integers(1, len(shape)))
    operands = [name, *Quantized(model, rng, dtype).names, *y_names]
    model.output(model.microsoft("QLinearSoftmax", operands, axis=axis, opset=opset), dtype)


def max_pool(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = image(rng), storage(rng)
    name, attributes = model.input("x", dtype, shape), window(rng, shape)
    if "pads" in attributes:
        attributes |= {"ceil_mode": int(rng.integers(0, 2))}
    model.output(model.node("MaxPool", [name], **attributes), dtype)


def quantize_linear(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = image(rng), storage(rng)
    axis = int(rng.integers(0, 4))
    if rng.integers(0, 2):
        scales = np.array([scale(rng) for _ in range(shape[axis])], np.float32)
        points = rng.integers(0, 100, shape[axis]).astype(dtype)
        parameters = [model.constant(scales), model.constant(points)]
    else:
        parameters = list(Quantized(model, rng, dtype).names)
    name = model.input("x", "float32", shape)
    stored = model.node("QuantizeLinear", [name, *parameters], axis=axis)
    model.output(stored, dtype)
    model.output(model.node("DequantizeLinear", [stored, *parameters], axis=axis), "float32")


def movement(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = (1, 3, 4, 6), storage(rng)
    x = model.input("x", dtype, shape)
    order = [int(axis) for axis in rng.permutation(4)]
    x = model.node("Transpose", [x], perm=order)
    x = model.node("Reshape", [x, model.constant(pick(rng, [-1, 6, 2], [6, 2, 6], [0, -1, 2]), "int64")])
    x = model.node("Unsqueeze", [x, model.constant([0, -1], "int64")])
    x = model.node("Squeeze", [x, model.constant([0], "int64")])
    model.output(model.node("Flatten", [x], axis=int(rng.integers(0, 4))), dtype)


CATALOG: dict[str, Write] = {
    "MaxPool": max_pool,
    "QGemm": qgemm,
    "QLinearAdd": _binary("QLinearAdd"),
    "QLinearAveragePool": qlinear_average_pool,
    "QLinearConcat": qlinear_concat,
    "QLinearConv": qlinear_conv,
    "QLinearGlobalAveragePool": qlinear_global_average_pool,
    "QLinearLeakyRelu": _function("QLinearLeakyRelu", alpha=0.2),
    "QLinearMatMul": qlinear_matmul,
    "QLinearMul": _binary("QLinearMul"),
    "QLinearSigmoid": _function("QLinearSigmoid"),
    "QLinearSoftmax": qlinear_softmax,
    "QuantizeLinear": quantize_linear,
    "movement": movement,
}


def case(name: str, seed: int, catalog: dict[str, Write] | None = None, opset: int = 17) -> bytes:
    """Returns the model that an entry of the catalog writes. `seed` is the seed of its random generator."""
    model = OnnxBuilder()
    (catalog or CATALOG)[name](model, np.random.default_rng(seed))
    return model.build(opset)
