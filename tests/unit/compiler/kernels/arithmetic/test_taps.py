"""The kernel taps of depthwise convolutions, in vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.kernels.arithmetic.taps import Taps
from service.compiler.kernels.layer import Window
from service.compiler.kernels.vector.isa import PIXELS


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 7), st.integers(1, 9))
def test_every_tap_of_every_output_is_in_one_vector(kernel: int, stride: int, dilation: int, columns: int) -> None:
    taps = Taps(Window((1, kernel), (1, stride), (1, dilation)), columns)
    row = np.arange(1, kernel + 1)  # the taps differ, so that the position of each is visible
    over = dict(zip(taps.shifts, taps.arrange(row), strict=True))
    for column in range(columns):
        found = {
            vector.position + pixel - column * stride: over[shift][pixel]
            for vector in taps.vectors
            for user, shift in vector.uses
            for pixel in range(PIXELS)
            if user == column and over[shift][pixel]
        }
        assert found == {tap * dilation: tap + 1 for tap in range(kernel)}
