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

Range = tuple[np.float32, np.float32]  # the smallest and the largest real value of a tensor

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


def axis_type(storage: str, scales: Array, axis: int) -> QuantizedType:
    """Returns a type with one scale, or with one for each index of `axis`."""
    found = tuple(float(scale) for scale in scales.reshape(-1))
    return QuantizedType(storage, found, axis=None if len(found) == 1 else axis)


def source_type(storage: str, multipliers: Array | np.float32, out_type: QuantizedType, axis: int = 0) -> QuantizedType:
    """Returns the input type of a requantization to `out_type` that multiplies by exactly `multipliers`, float32."""
    return axis_type(storage, np.asarray(multipliers, np.float64) * out_type.scale, axis)


def product_range(dtype: str, limits: Range, weight_limits: Range) -> Range:
    """Returns the range of sums whose terms multiply `dtype` by int8 (`QuantizationRangeForMultiplication`)."""
    level, weight_level = max_abs(*limits) / LARGEST[dtype], max_abs(*weight_limits) / LARGEST["int8"]
    largest = np.float32(level * weight_level * INT32_RANGE)
    return -largest, largest
