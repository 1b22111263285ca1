"""Models with operators that only a dialect of a test can convert."""

from __future__ import annotations

import numpy as np

from tests.support.onnx_builder import OnnxBuilder

CHANNELS, SIZE = 8, 12


def curved_convolution() -> bytes:
    """Returns an ONNX file: a convolution of 8-bit values, Softsign, and a conversion to int8.

    The input `x` is float32 [1, 8, 12, 12].
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
    sums = builder.node("Conv", real, pads=[1, 1, 1, 1])
    curved = builder.node("Softsign", [sums], ["curved"])
    result = builder.dequantized(builder.quantized(curved, 1 / 64, -7, "int8"), 1 / 64, -7, "int8")
    builder.node("Identity", [result], ["y"])
    builder.output("y", "float32", [1, 16, SIZE, SIZE])
    return builder.build()


def inputs() -> np.ndarray:
    """Returns an input of `curved_convolution`."""
    return np.random.default_rng(1).normal(0, 2, (1, CHANNELS, SIZE, SIZE)).astype(np.float32)
