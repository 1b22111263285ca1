"""Tests of converting stored integers to real values."""

from __future__ import annotations

import numpy as np

from service.core.models.signature import Quantization


def test_a_real_value_is_the_scale_times_the_distance_from_the_zero_point() -> None:
    real = Quantization(0.5, -3).real(np.array([[-3, -1, 127]], np.int8))
    assert real.dtype.name == "float32"
    assert real.tolist() == [[0.0, 1.0, 65.0]]


def test_both_ends_of_the_range_are_subtracted_without_overflow() -> None:
    assert Quantization(1 / 256, -128).real(np.array([-128, 127], np.int8)).tolist() == [0.0, 255 / 256]
    assert Quantization(1.0, 255).real(np.array([0, 255], np.uint8)).tolist() == [-255.0, 0.0]


def test_the_real_value_is_rounded_once() -> None:
    stored, scale = np.arange(-(1 << 15), 1 << 15, dtype=np.int16), float(np.float32(0.1))
    exact = np.array([scale * int(each) for each in stored])  # products of 24 and 16 bits are exact in float64
    np.testing.assert_array_equal(Quantization(scale, 0).real(stored), exact.astype(np.float32))
