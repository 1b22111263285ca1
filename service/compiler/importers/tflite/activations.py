"""Fused activations. In a quantized model they clamp stored values, so they become storage bounds of a type."""

from __future__ import annotations

import math

import numpy as np

from service.compiler.qnn.types import STORAGE_RANGES

# Activation -> its real bounds; None if it has no such bound.
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),  # occurs only as a separate operator
}
# ActivationFunctionType in schema.fbs.
NAMES: dict[int, str] = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH", 5: "SIGN_BIT"}


def storage_bounds(activation: str, storage: str, scale: float, zero_point: int) -> tuple[int, int]:
    """Returns the smallest and the largest stored value of an output after `activation`, a name of `BOUNDS`.

    The computation is that of `CalculateActivationRangeQuantized` in tflite/kernels/kernel_util.cc. Each real bound is
    quantized with the output's scale and zero point in float32, rounded half away from zero, and limited to the storage
    range. `QuantizedReluX` in tflite/kernels/activations.cc does the same for activations that are separate operators.
    """
    low, high = STORAGE_RANGES[storage]
    real_low, real_high = BOUNDS[activation]
    if real_low is not None:
        low = max(low, _quantize(real_low, scale, zero_point))
    if real_high is not None:
        high = min(high, _quantize(real_high, scale, zero_point))
    return low, high


def delegated_bounds(activation: str, storage: str, scale: float, zero_point: int) -> tuple[int, int]:
    """Returns the bounds of `storage_bounds` as XNNPACK computes them: the zero point is added in float32, and the sum
    is rounded to the nearest integer, halves to even (xnn_qs8_quantize and xnn_qu8_quantize in XNNPACK's
    quantization.h; measured on LiteRT 2.3.0). The two functions differ if a bound is exactly halfway between two stored
    values.
    """
    low, high = STORAGE_RANGES[storage]
    real_low, real_high = BOUNDS[activation]

    def quantized(real: float) -> int:
        with np.errstate(over="ignore"):
            stored = np.float32(real) / np.float32(scale) + np.float32(zero_point)
        return int(np.rint(np.clip(stored, low, high)))

    return low if real_low is None else quantized(real_low), high if real_high is None else quantized(real_high)


def _quantize(real: float, scale: float, zero_point: int) -> int:
    with np.errstate(over="ignore"):
        quotient = float(np.float32(real) / np.float32(scale))
    if math.isinf(quotient):  # the quotient is beyond every storage range, and the caller clamps it
        quotient = math.copysign(2.0**31, quotient)
    return zero_point + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))
