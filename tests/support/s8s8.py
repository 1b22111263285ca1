"""A network with signed activations and signed weights. By default, ONNX Runtime computes it in float32.

It has convolutions between conversions, in the form that `quantize_static` writes with int8 for activations and
weights. On x86-64, the session option `session.qdqisint8allowed` enables fused integer kernels for these convolutions.
"""

from __future__ import annotations

import numpy as np

from tests.support.onnx_builder import OnnxBuilder

_CHANNELS, _SIDE, _LAYERS, _SCALE = 16, 8, 3, 0.02


def s8s8_network() -> bytes:
    """Returns a network of three int8 convolutions with int8 outputs; its input is `x` `[1, 16, 8, 8]`."""
    rng = np.random.default_rng(20)
    model = OnnxBuilder()
    stored = model.input("x", "int8", (1, _CHANNELS, _SIDE, _SIDE))
    zero_point = 3
    for _ in range(_LAYERS):
        weights = model.constant(rng.integers(-9, 10, (_CHANNELS, _CHANNELS, 3, 3)), "int8")
        bias = model.constant(rng.integers(-500, 500, _CHANNELS), "int32")
        # Sums are multiples of 1/16 step. Many are halves, so float32 rounding errors decide whether they are rounded
        # up or down.
        weights_scale = np.float32(1 / 16)
        real = model.node(
            "Conv",
            [
                model.dequantized(stored, _SCALE, zero_point, "int8"),
                model.dequantized(weights, weights_scale, 0, "int8"),
                model.dequantized(bias, np.float32(_SCALE) * weights_scale, 0, "int32"),
            ],
            kernel_shape=[3, 3],
            pads=[1, 1, 1, 1],
        )
        zero_point = -5
        stored = model.quantized(real, _SCALE, zero_point, "int8")
    model.output(stored, "int8", (1, _CHANNELS, _SIDE, _SIDE))
    return model.build()
