"""MXNet's scales: steps per unit, float32, from the smallest and largest real value of a tensor.

Sources: `MaxAbs`, `GetQuantizeScale`, `FloatForOneQuantizedLevel` of src/operator/quantization/quantization_utils.h.
    The dialect defines scale by real = scale * stored. MXNet's scale is the reciprocal, and MXNet rounds both to
    float32 separately. Therefore types contain 1 / scale in float64, from which MXNet's float32 scale can be recovered
    exactly.
"""

from __future__ import annotations

import numpy as np

from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

# The largest real value is half a step more than the largest stored value (`kInt8Range`, `kUint8Range`). Exceptions are
# the ranges of sums of products, and the requantization of int32.
QUANTIZED_RANGES = {"int8": np.float32(127.5), "uint8": np.float32(255.5)}
LARGEST = {"int8": np.float32(127), "uint8": np.float32(255)}
INT32_RANGE = np.float32((1 << 31) - 1)


def max_abs(low: np.float32, high: np.float32) -> np.float32:
    """Returns the largest magnitude in a range."""
    return np.float32(max(abs(low), abs(high)))


def steps_per_unit(dtype: str, low: np.float32, high: np.float32) -> np.float32:
    """Returns the factor that converts real values of a range to stored values of `dtype`."""
    return np.float32(QUANTIZED_RANGES[dtype] / max_abs(low, high))


def type_of(dtype: str, steps: np.float32) -> QuantizedType:
    """Returns the type of a tensor with `steps` steps per unit."""
    return QuantizedType(dtype, (1 / float(steps),))


def weights_type(steps: Array) -> QuantizedType:
    """Returns the type of int8 weights with one scale, or one for each filter."""
    scales = tuple(1 / float(value) for value in steps)
    return QuantizedType("int8", scales, axis=None if len(scales) == 1 else 0)


def source_type(storage: str, multipliers: Array, out_type: QuantizedType, axis: int | None = None) -> QuantizedType:
    """Returns the input type of a requantization to `out_type` that multiplies by exactly `multipliers`, float32."""
    scales = tuple(float(value) * out_type.scale for value in multipliers)
    return QuantizedType(storage, scales, axis=None if len(scales) == 1 else axis)


def product_range(
    dtype: str, low: np.float32, high: np.float32, weight_low: np.float32, weight_high: np.float32
) -> np.float32:
    """Returns the real value of the largest int32 sum of products of `dtype` and int8
    (`QuantizationRangeForMultiplication`).
    """
    level = max_abs(low, high) / LARGEST[dtype]
    weight_level = max_abs(weight_low, weight_high) / LARGEST["int8"]
    return np.float32(level * weight_level * INT32_RANGE)
