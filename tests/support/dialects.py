"""Models with operators that Octet imports only with a dialect, and the dialects of `examples/dialects`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from service.core.models.arrays import Array
from tests.support.onnx_builder import OnnxBuilder
from tests.support.tflite_builder import ModelBuilder, Quant, serialize

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "dialects"
SOFTSIGN, FUSED = EXAMPLES / "softsign.py", EXAMPLES / "fused_softsign.py"
ACCELERATOR, JSON_NETWORK = EXAMPLES / "accelerator.py", EXAMPLES / "json_network.py"
CHANNELS, SIZE = 8, 12
# A file for JSON_NETWORK: a dense layer whose sums have scale 0.125.
JSON_FILE = json.dumps(
    {
        "network": 1,
        "input": {"name": "x", "shape": [1, 2], "type": "!quant.uniform<i8:f32, 0.5:3>"},
        "layers": [
            {
                "name": "y",
                "weight": [[1, -2], [3, 4], [5, 6]],
                "weight_scale": 0.25,
                "bias": [7, 8, 9],
                "type": "!quant.uniform<i8:f32, 0.25>",
            }
        ],
    }
)


def onnx_softsign() -> bytes:
    """Returns an ONNX file: Softsign between conversions of int8. The input and the output are int8 [1, 16, 16]."""
    builder = OnnxBuilder()
    x = builder.input("x", "int8", [1, 16, 16])
    curved = builder.node("Softsign", [builder.dequantized(x, 0.05, 3, "int8")])
    scale, zero_point = builder.quantization(1 / 64, -7, "int8")
    builder.node("QuantizeLinear", [curved, scale, zero_point], ["y"])
    builder.output("y", "int8", [1, 16, 16])
    return builder.build()


def tflite_softsign() -> bytes:
    """Returns a TFLite file with the custom operator FlexSoftsign, from int8 to int8 [1, 16, 16]."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 16, 16), np.int8, Quant(0.05, 3))
    y = builder.tensor("y", (1, 16, 16), np.int8, Quant(1 / 64, -7))
    builder.operator("CUSTOM", [x], [y])
    builder.build([x], [y])
    builder.model.operatorCodes[0].customCode = "FlexSoftsign"
    return serialize(builder.model)


def curved_convolution() -> bytes:
    """Returns an ONNX file: a convolution of 8-bit values, Softsign, and a conversion to int8. The input `x` is
    float32 [1, 8, 12, 12].
    """
    rng = np.random.default_rng(0)
    builder = OnnxBuilder()
    x = builder.input("x", "float32", [1, CHANNELS, SIZE, SIZE])
    stored = builder.quantized(x, 0.05, 3, "int8")
    weight = builder.constant(rng.integers(-127, 128, (16, CHANNELS, 3, 3)), "int8")
    bias = builder.constant(rng.integers(-2000, 2000, 16), "int32")
    real = [
        builder.dequantized(stored, 0.05, 3, "int8"),
        builder.dequantized(weight, 0.01, 0, "int8"),
        builder.dequantized(bias, np.float32(0.05) * np.float32(0.01), 0, "int32"),
    ]
    curved = builder.node("Softsign", [builder.node("Conv", real, pads=[1, 1, 1, 1])], ["curved"])
    builder.node(
        "Identity", [builder.dequantized(builder.quantized(curved, 1 / 64, -7, "int8"), 1 / 64, -7, "int8")], ["y"]
    )
    builder.output("y", "float32", [1, 16, SIZE, SIZE])
    return builder.build()


def convolution() -> tuple[bytes, Array, Array]:
    """Returns an ONNX file with a convolution of int8 (QLinearConv), its weight `[O, C, KH, KW]`, and its bias. The
    input `x` is int8 [1, 8, 12, 12] with scale 0.05 and zero point 3, output channel c of the weight has scale 0.01 /
    (c + 1), and the output has scale 1 and zero point -5.
    """
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (16, CHANNELS, 3, 3)).astype(np.int8)
    bias = rng.integers(-2000, 2000, 16).astype(np.int32)
    builder = OnnxBuilder()
    x = builder.input("x", "int8", [1, CHANNELS, SIZE, SIZE])
    given = [x, *builder.quantization(0.05, 3, "int8"), builder.constant(weight)]
    given += [
        *builder.quantization(0.01 / np.arange(1, 17), np.zeros(16), "int8"),
        *builder.quantization(1.0, -5, "int8"),
        builder.constant(bias),
    ]
    builder.node("QLinearConv", given, ["y"])
    builder.output("y", "int8", [1, 16, SIZE - 2, SIZE - 2])
    return builder.build(), weight, bias


def float_network(curve: str = "softsign") -> bytes:
    """Returns an ONNX file of real values: a dense layer, a function, and another dense layer. The input `x` is float32
    [1, 16]. The function is Softsign, or x * sigmoid(1.702 x) if `curve` is `quick`.
    """
    rng = np.random.default_rng(0)
    builder = OnnxBuilder()
    x = builder.input("x", "float32", [1, 16])
    first = builder.node("MatMul", [x, builder.constant(rng.normal(0, 0.3, (16, 32)), "float32")])
    if curve == "quick":
        scaled = builder.node("Mul", [first, builder.constant(1.702, "float32")])
        builder.node("Mul", [first, builder.node("Sigmoid", [scaled])], ["curved"])
    else:
        builder.node("Softsign", [first], ["curved"])
    builder.node("MatMul", ["curved", builder.constant(rng.normal(0, 0.3, (32, 4)), "float32")], ["y"])
    builder.output("y", "float32", [1, 4])
    return builder.build()


# A dialect that quantizes three operators of `float_network("quick")` as one.
QUICK_GELU = """
from octet import qnn
from octet.qnn import patterns as p

curves = qnn.Dialect("curves")


@curves.real(onnx="curves.Quick")
def quick(x):
    return x * qnn.sigmoid(1.702 * x)


x = p.wildcard()
gate = p.is_op("relax.qnn.real_logistic")(p.is_op("relax.multiply")(x, p.is_const()))


@curves.simulation(p.is_op("relax.multiply")(x, gate))
def quick_gelu(found, parts):
    return quick(parts[x])
"""


def reals() -> Array:
    """Returns an input of `curved_convolution`."""
    return np.random.default_rng(1).normal(0, 2, (1, CHANNELS, SIZE, SIZE)).astype(np.float32)
