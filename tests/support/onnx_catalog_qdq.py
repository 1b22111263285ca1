"""ONNX models of one float operator each, between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from service.core.models.arrays import Array
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import Quantized, Rng, Write, image, pick, storage, weights, window


def real(model: OnnxBuilder, name: str, shape: Any, x: Quantized) -> str:
    """Adds a float32 input with a QuantizeLinear and a DequantizeLinear, in the form that quantizers write."""
    stored = model.node("QuantizeLinear", [model.input(name, "float32", shape), *x.names])
    return model.node("DequantizeLinear", [stored, *x.names])


def quantized_input(model: OnnxBuilder, rng: Rng, shape: Sequence[int], name: str = "x") -> str:
    """Adds an input of real values that is quantized and dequantized."""
    return real(model, name, tuple(shape), Quantized(model, rng, storage(rng)))


def normal_constant(model: OnnxBuilder, rng: Rng, *shape: int) -> str:
    """Adds a constant of normally distributed values."""
    return model.constant(rng.normal(size=shape), "float32")


def leave(model: OnnxBuilder, result: str, y: Quantized) -> None:
    """Adds a QuantizeLinear, a DequantizeLinear and an output of the model."""
    model.output(
        model.node("DequantizeLinear", [model.node("QuantizeLinear", [result, *y.names]), *y.names]), "float32"
    )


def activation(model: OnnxBuilder, rng: Rng, x: str, y: Quantized) -> str:
    """Adds nothing, or an activation that the range of the output's type implies. ONNX Runtime fuses such an activation
    into the operator.
    """
    lowest = y.zero_point == np.iinfo(y.dtype).min
    bounds = model.constant(0.0, "float32"), model.constant(y.scale * 300, "float32")
    match int(rng.integers(0, 3)) if lowest else 0:
        case 0:
            return x
        case 1:
            return model.node("Relu", [x])
        case _:
            return model.node("Clip", [x, *bounds])


def bias_of(model: OnnxBuilder, rng: Rng, count: int, step: float, scales: Array, *, stored: bool = False) -> str:
    """Adds a bias with the scale of the accumulators. It contains integers, or real values that must be rounded to that
    scale.
    """
    steps = rng.integers(-5000, 5000, count).astype(np.int32)
    products = np.broadcast_to(np.float32(step) * scales, count)
    if rng.integers(0, 2) and not stored:
        return model.constant((steps + rng.uniform(-0.4, 0.4, count)) * products, "float32")
    return model.dequantized(model.constant(steps), products, np.zeros(count), "int32", axis=0)


def conv(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = image(rng), storage(rng)
    x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
    attributes, filters = window(rng, shape), int(rng.integers(1, 9))
    drawn = weights(model, rng, (filters, shape[1], *attributes["kernel_shape"]), 0, dtype)
    w = model.node("DequantizeLinear", drawn.names, axis=0)
    image_ = real(model, "x", shape, x)
    bias = []
    if rng.integers(0, 2):
        bias = [bias_of(model, rng, filters, x.scale, drawn.scales)]
    result = model.node("Conv", [image_, w, *bias], **attributes)
    leave(model, activation(model, rng, result, y), y)


def gemm(model: OnnxBuilder, rng: Rng) -> None:
    depth, units, dtype = int(rng.integers(1, 40)), int(rng.integers(1, 20)), storage(rng)
    x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
    drawn = weights(model, rng, (units, depth), 0, dtype)
    w = model.node("DequantizeLinear", drawn.names, axis=0)
    quantized_out = bool(rng.integers(0, 3))
    bias = bias_of(model, rng, units, x.scale, drawn.scales, stored=True)
    result = model.node("Gemm", [real(model, "x", (2, depth), x), w, bias], transB=1)
    if quantized_out:
        leave(model, activation(model, rng, result, y), y)
    else:
        model.output(result, "float32")


def real_bias(model: OnnxBuilder, rng: Rng) -> int:
    """Writes a Gemm with a real bias and a real output. Returns the number of terms in a sum."""
    depth, units = 40, 20
    x = Quantized(model, rng, "uint8")
    drawn = weights(model, rng, (units, depth), 0, "uint8")
    w = model.node("DequantizeLinear", drawn.names, axis=0)
    bias = model.constant(rng.normal(0, 10, units), "float32")
    model.output(model.node("Gemm", [real(model, "x", (2, depth), x), w, bias], transB=1), "float32")
    return depth


def clipped_conv(model: OnnxBuilder, rng: Rng) -> float:
    """Writes a quantized convolution and a Clip that the range of the output's type does not imply. Returns the
    output's scale.
    """
    x, y = Quantized(model, rng, "uint8"), Quantized(model, rng, "uint8")
    w = model.node("DequantizeLinear", weights(model, rng, (5, 3, 3, 3), 0, "uint8").names, axis=0)
    result = model.node("Conv", [real(model, "x", (1, 3, 9, 9), x), w])
    bounds = [model.constant(y.scale * steps, "float32") for steps in (-20, 60)]
    leave(model, model.node("Clip", [result, *bounds]), y)
    return y.scale


def matmul(model: OnnxBuilder, rng: Rng) -> None:
    depth, units, dtype = int(rng.integers(1, 40)), int(rng.integers(1, 20)), storage(rng)
    x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
    drawn = weights(model, rng, (depth, units), 1, dtype)
    w = model.node("DequantizeLinear", drawn.names, axis=1)
    result = model.node("MatMul", [real(model, "x", pick(rng, (2, depth), (2, 3, depth)), x), w])
    if rng.integers(0, 3):
        leave(model, result, y)
    else:
        model.output(result, "float32")


def _between(op_type: str, operands: int = 1, **attributes: Any) -> Write:
    def write(model: OnnxBuilder, rng: Rng) -> None:
        shape, dtype = image(rng), storage(rng)
        names = [real(model, f"x{index}", shape, Quantized(model, rng, dtype)) for index in range(operands)]
        leave(model, model.node(op_type, names, **attributes), Quantized(model, rng, dtype))

    return write


def _of_two_types(op_type: str, operands: int = 1, **attributes: Any) -> Write:
    """Like `_between`, but the storage types of operands and result are not all equal: some are int8, the others
    uint8.
    """

    def write(model: OnnxBuilder, rng: Rng) -> None:
        shape, dtypes = image(rng), [storage(rng)] * (operands + 1)
        dtypes[int(rng.integers(0, operands + 1))] = "uint8" if dtypes[0] == "int8" else "int8"
        names = [real(model, f"x{index}", shape, Quantized(model, rng, dtypes[index])) for index in range(operands)]
        leave(model, model.node(op_type, names, **attributes), Quantized(model, rng, dtypes[-1]))

    return write


def average_pool(model: OnnxBuilder, rng: Rng) -> None:
    shape, dtype = image(rng), storage(rng)
    x, y = Quantized(model, rng, dtype), Quantized(model, rng, dtype)
    attributes = window(rng, shape) | {"count_include_pad": int(rng.integers(0, 2))}
    leave(model, model.node("AveragePool", [real(model, "x", shape, x)], **attributes), y)


def write_movements(model: OnnxBuilder, rng: Rng) -> None:
    """Writes a QuantizeLinear, operators that move elements, and a DequantizeLinear of the same or another type."""
    shape, dtype = image(rng), storage(rng)
    x = Quantized(model, rng, dtype)
    value = real(model, "x", shape, x)
    for _ in range(int(rng.integers(1, 4))):
        match int(rng.integers(0, 4)):
            case 0:
                value = model.node("Relu", [value])
            case 1:
                value = model.node("Unsqueeze", [value, model.constant([0], "int64")])
                value = model.node("Squeeze", [value, model.constant([0], "int64")])
            case 2:
                value = model.node("Identity", [value])
            case _:
                value = model.node("MaxPool", [value], kernel_shape=[2, 2], pads=[0, 1, 1, 0])
    value = model.node("Flatten", [model.node("Transpose", [value], perm=[0, 2, 3, 1])])
    leave(model, value, pick(rng, x, Quantized(model, rng, dtype)))


def left_in_float(model: OnnxBuilder, rng: Rng) -> None:
    """Writes arithmetic of real values with constants."""
    shape, dtype = image(rng), storage(rng)
    value = real(model, "x", shape, Quantized(model, rng, dtype))
    for op_type in ("Add", "Mul", "Sub", "Div"):
        constant = model.constant(rng.uniform(0.5, 2.0, pick(rng, (), (shape[1], 1, 1))), "float32")
        value = model.node(op_type, [value, constant])
    leave(model, model.node("Relu", [value]), Quantized(model, rng, dtype))


def softmax(model: OnnxBuilder, rng: Rng) -> None:
    dtype = storage(rng)
    value = real(model, "x", (2, int(rng.integers(10, 200))), Quantized(model, rng, dtype))
    stored = model.quantized(model.node("Softmax", [value], axis=1), 1 / 256, np.iinfo(dtype).min, dtype)
    model.output(model.dequantized(stored, 1 / 256, np.iinfo(dtype).min, dtype), "float32")


# Float operators between DequantizeLinear and QuantizeLinear.
QDQ: dict[str, Write] = {
    "Add": _between("Add", 2),
    "Add of int8 and uint8": _of_two_types("Add", 2),
    "AveragePool": average_pool,
    "Concat": _between("Concat", 3, axis=1),
    "Concat of int8 and uint8": _of_two_types("Concat", 3, axis=1),
    "Conv": conv,
    "Gemm": gemm,
    "GlobalAveragePool": _between("GlobalAveragePool"),
    "LeakyRelu": _between("LeakyRelu", alpha=0.1),
    "MatMul": matmul,
    "LeakyRelu of int8 and uint8": _of_two_types("LeakyRelu", alpha=0.1),
    "Mul": _between("Mul", 2),
    "Mul of int8 and uint8": _of_two_types("Mul", 2),
    "Sigmoid": _between("Sigmoid"),
    "Softmax": softmax,
    "left in float": left_in_float,
    "moved": write_movements,
}
