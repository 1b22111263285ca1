"""The padding and the output sizes of windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.tflite.geometry import SAME, VALID, output_size, padding_2d, padding_of

SIZES = st.integers(1, 60)
SMALL = st.integers(1, 7)


@pytest.mark.parametrize(
    ("size", "window", "stride", "expected"),
    [
        (224, 3, 2, (0, 1)),  # the first layer of every MobileNet: the additional element goes after
        (5, 3, 1, (1, 1)),
        (7, 2, 1, (0, 1)),
        (8, 1, 2, (0, 0)),
        (4, 2, 3, (0, 1)),
    ],
)
def test_same_padding(size: int, window: int, stride: int, expected: tuple[int, int]) -> None:
    assert padding_of(SAME, size, window, stride, dilation=1) == expected


def test_two_dimensions_are_top_left_bottom_right() -> None:
    assert padding_2d(SAME, (224, 5), (3, 3), (2, 1), (1, 1)) == (0, 1, 1, 1)


@given(SIZES, SMALL, SMALL, SMALL)
def test_same_padding_gives_one_output_for_each_stride(size: int, window: int, stride: int, dilation: int) -> None:
    before, after = padding_of(SAME, size, window, stride, dilation)
    reach = (window - 1) * dilation + 1
    positions = range(-before, size + after - reach + 1, stride)
    assert len(positions) == output_size(SAME, size, window, stride, dilation) == len(range(0, size, stride))
    assert after - before in (0, 1)


@given(SIZES, SMALL, SMALL, SMALL)
def test_valid_windows_stay_inside(size: int, window: int, stride: int, dilation: int) -> None:
    reach = (window - 1) * dilation + 1
    assert padding_of(VALID, size, window, stride, dilation) == (0, 0)
    assert max(output_size(VALID, size, window, stride, dilation), 0) == len(range(0, size - reach + 1, stride))
