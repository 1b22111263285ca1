"""The numbers of a FakeQuantize, which OpenVINO computes in float32."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.openvino.values import Compressed, Steps


def test_the_factor_and_shift_are_rounded_to_float32() -> None:
    low, high = np.float32(-9.522893905639648), np.float32(11.056241035461426)
    steps = Steps.of(low, high, 256)
    assert steps.factor == np.float32(12.391190528869629)  # in float64 it would be …1482
    assert steps.shift == np.float32(-low * steps.factor)


def test_a_negligible_shift_is_left_out() -> None:
    assert Steps.of(np.float32(-1e-7), np.float32(6), 256).shift == 0


def test_scales_of_rows() -> None:
    data = np.ones((2, 3), np.int8)
    rows = Compressed(data, (2, 3), np.array([[0.5], [2.0]], np.float32))
    assert rows.row_scales(0) is not None
    assert rows.row_scales(1) is None
    np.testing.assert_array_equal(rows.values, [[0.5] * 3, [2.0] * 3])
    shifted = Compressed(data, (2, 3), rows.scale, np.array([[1], [0]], np.int8))
    assert shifted.row_scales(0) is None
