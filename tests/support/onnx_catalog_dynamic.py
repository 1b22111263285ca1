"""ONNX models of one operator each that quantizes real values when it runs (dynamic quantization).

As in `onnx_catalog`, a seeded generator makes all choices.
"""

from __future__ import annotations

import numpy as np

from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_catalog import Quantized, Rng, Write, pick, scale


def dynamic_matmul(model: OnnxBuilder, rng: Rng, *, convolution: bool = False) -> None:
    """Writes a product in the form that `onnxruntime.quantization.quantize_dynamic` writes."""
    dtype = str(pick(rng, "int8", "uint8"))
    x = model.input("x", "float32", (1, 3, 7, 8) if convolution else pick(rng, (1, 10), (1, 4, 10)))
    names = [model.name(stem) for stem in ("stored", "step", "point")]
    stored, step, point = names
    model.node("DynamicQuantizeLinear", [x], names)
    low = int(np.iinfo(dtype).min)
    shape = (5, 3, 3, 3) if convolution else (10, 6)
    weights = model.constant(rng.integers(low, low + 256, shape), dtype)
    zero_point = model.constant(int(rng.integers(low, low + 256)), dtype)
    if convolution:
        operands = [stored, weights, point, zero_point]
        sums = model.node("ConvInteger", operands, pads=[1, 0, 2, 1], strides=[1, 2])
    else:
        sums = model.node("MatMulInteger", [stored, weights, point, zero_point])
    product = model.node("Mul", [step, model.constant(scale(rng), "float32")])
    result = model.node("Mul", [model.node("Cast", [sums], to=1), product])
    model.output(result, "float32")


def dynamic_conv(model: OnnxBuilder, rng: Rng) -> None:
    dynamic_matmul(model, rng, convolution=True)


def dynamic_quantize_linear(model: OnnxBuilder, rng: Rng) -> None:
    names = ["stored", "step", "point"]
    model.node("DynamicQuantizeLinear", [model.input("x", "float32", pick(rng, (3, 40), (1, 2, 30)))], names)
    for name, dtype in zip(names, ("uint8", "float32", "uint8"), strict=True):
        model.output(name, dtype)


def dynamic_quantize_matmul(model: OnnxBuilder, rng: Rng) -> None:
    """Writes the operator to which ONNX Runtime fuses the four operators of dynamic quantization."""
    weights, point = model.constant(rng.integers(0, 256, (10, 6)), "uint8"), model.constant([130], "uint8")
    operands = [model.input("x", "float32", (2, 10)), weights, model.constant([scale(rng)], "float32"), point]
    bias = [model.constant(rng.normal(size=6), "float32")] if rng.integers(0, 2) else []
    model.output(model.microsoft("DynamicQuantizeMatMul", operands + bias), "float32")


def matmul_integer_to_float(model: OnnxBuilder, rng: Rng) -> None:
    dtype = str(pick(rng, "int8", "uint8"))
    low = int(np.iinfo(dtype).min)
    a = Quantized(model, rng, "uint8")
    weights = model.constant(rng.integers(low, low + 256, (10, 6)), dtype)
    scales = model.constant([scale(rng) for _ in range(6)] if rng.integers(0, 2) else [scale(rng)], "float32")
    operands = [model.input("a", "uint8", (3, 10)), weights, a.names[0], scales, a.names[1]]
    operands.append(model.constant([low + 128], dtype))
    bias = [model.constant(rng.normal(size=6), "float32")] if rng.integers(0, 2) else []
    model.output(model.microsoft("MatMulIntegerToFloat", operands + bias), "float32")


# Models whose results equal ONNX Runtime's bit for bit.
DYNAMIC: dict[str, Write] = {
    "ConvInteger": dynamic_conv,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "DynamicQuantizeMatMul": dynamic_quantize_matmul,
    "MatMulInteger": dynamic_matmul,
    "MatMulIntegerToFloat": matmul_integer_to_float,
}
