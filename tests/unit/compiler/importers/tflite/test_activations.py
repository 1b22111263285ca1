"""Fused activations as storage bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.tflite.activations import BOUNDS, storage_bounds
from service.compiler.qnn.types import STORAGE_RANGES

SCALES = st.floats(2.0**-20, 1024.0, width=32)


@pytest.mark.parametrize(
    ("activation", "storage", "scale", "zero_point", "expected"),
    [
        ("NONE", "int8", 0.1, 5, (-128, 127)),
        ("RELU", "int8", 0.1, 5, (5, 127)),
        ("RELU", "uint8", 0.1, 0, (0, 255)),
        ("RELU6", "uint8", 6 / 255, 0, (0, 255)),
        ("RELU6", "uint8", 0.1, 10, (10, 70)),
        ("RELU6", "int8", 0.01, -128, (-128, 127)),
        ("RELU_N1_TO_1", "int8", 0.1, 0, (-10, 10)),
        ("RELU_N1_TO_1", "int8", 2.0, 0, (-1, 1)),  # Half a step is rounded away from zero.
        ("RELU6", "int8", 4.0, -1, (-1, 1)),  # 1.5 steps are rounded to 2.
        ("RELU6", "int8", 1e-45, 0, (0, 127)),  # 6 / scale is infinite in float32.
    ],
)
def test_bounds(activation: str, storage: str, scale: float, zero_point: int, expected: tuple[int, int]) -> None:
    assert storage_bounds(activation, storage, scale, zero_point) == expected


@given(st.sampled_from(sorted(BOUNDS)), st.sampled_from(["int8", "uint8"]), SCALES, st.data())
def test_bounds_quantize_the_real_bounds(activation: str, storage: str, scale: float, data: st.DataObject) -> None:
    low, high = STORAGE_RANGES[storage]
    zero_point = data.draw(st.integers(low, high))
    bounds = storage_bounds(activation, storage, scale, zero_point)
    assert low <= bounds[0] <= bounds[1] <= high
    for real, bound, default in zip(BOUNDS[activation], bounds, (low, high), strict=True):
        if real is None:
            assert bound == default
        else:  # exact arithmetic on the float32 quotient, rounded half away from zero
            quotient = Fraction(float(np.float32(real) / np.float32(scale)))
            steps = int(abs(quotient) + Fraction(1, 2)) * (1 if quotient >= 0 else -1)
            assert bound == min(max(zero_point + steps, low), high)
