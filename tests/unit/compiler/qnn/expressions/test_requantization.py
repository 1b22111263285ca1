"""Tests of the properties that kernels derive from a requantization: its equivalent fixed point, and its arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.requantization import (
    DoubleRounding,
    FixedPoint,
    FloatScale,
    Kept,
    SingleRounding,
    Words,
)

MOST = (1 << 24) - 1
FACTS = Facts(smallest=np.array([-MOST]), largest=np.array([MOST]))

significands = st.integers(1 << 30, (1 << 31) - 1)
accumulators = st.integers(-MOST, MOST)


def computed(function: FixedPoint, x: int) -> int:
    """Computes a fixed point in integers of any size."""
    significand, right, half, away = (int(array[0]) for array in (
        function.significands, function.rights, function.halves, function.aways
    ))  # fmt: skip
    return (x * significand + half - (away if x < 0 else 0)) >> right


def divided_away(x: int, exponent: int) -> int:
    """Computes x / 2**exponent, halves away from zero."""
    magnitude = (abs(x) + (1 << exponent >> 1)) >> exponent
    return magnitude if x >= 0 else -magnitude


@given(significands, st.integers(-20, 6), accumulators)
def test_two_roundings_have_an_equivalent_fixed_point(significand: int, shift: int, x: int) -> None:
    function = DoubleRounding(np.array([significand]), np.array([shift])).fixed_point(FACTS)
    assert function is not None
    high = ((x << max(shift, 0)) * significand + (1 << 30)) >> 31
    assert computed(function, x) == divided_away(high, max(-shift, 0))


@given(significands, st.integers(-20, 6), accumulators)
def test_one_rounding_has_an_equivalent_fixed_point(significand: int, shift: int, x: int) -> None:
    function = SingleRounding(np.array([significand]), np.array([shift])).fixed_point(FACTS)
    assert function is not None
    assert computed(function, x) == divided_away(x * significand, 31 - shift)


@pytest.mark.parametrize("x", [-3, -1, 1, 3])
def test_halves_are_rounded_away_from_zero(x: int) -> None:
    half = SingleRounding(np.array([1 << 30]), np.array([0])).fixed_point(FACTS)
    assert half is not None
    assert computed(half, x) == (x + 1) // 2 if x > 0 else (x - 1) // 2


def test_accumulators_that_leave_32_bits_have_no_fixed_point() -> None:
    assert DoubleRounding(np.array([1 << 30]), np.array([8])).fixed_point(FACTS) is None


def test_a_float_scale_has_no_fixed_point() -> None:
    assert FloatScale(np.array([0.5]), bounded=True).fixed_point(FACTS) is None


def test_only_the_shifts_in_use_are_arrays() -> None:
    significands = np.array([1 << 30, 1 << 30])
    counts = {
        shifts: len(DoubleRounding(significands, np.array(shifts)).arrays)
        for shifts in ((0, 0), (1, 0), (0, -1), (1, -1))
    }
    assert counts == {(0, 0): 1, (1, 0): 2, (0, -1): 2, (1, -1): 3}


def test_one_value_is_repeated_for_every_channel() -> None:
    words = Words(SingleRounding(np.array([1 << 30]), np.array([-3])), 0, -128, 127)
    significands, rights = words.repeated(3).arrays
    np.testing.assert_array_equal(significands, [1 << 30] * 3)
    np.testing.assert_array_equal(rights, [34] * 3)


def test_additional_channels_repeat_the_last_one() -> None:
    scales = FloatScale(np.array([0.5, 0.25]), bounded=True).extended(4)
    np.testing.assert_array_equal(scales.scales, [0.5, 0.25, 0.25, 0.25])


def test_a_bias_is_the_first_value_of_the_accumulators() -> None:
    started = Kept().started(np.array([1, -2], np.int64))
    assert started.dtype == np.int32
    np.testing.assert_array_equal(started, [1, -2])
