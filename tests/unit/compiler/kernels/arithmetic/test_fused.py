"""Requantization by one fused multiply-add equals TFLite's requantization for every accumulator, or is not used."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.arithmetic.fused import MOST_EXCEPTIONS
from tests.support.fused_scales import KINDS, RELU, SIGNED, Channels, computed


def test_each_variant_of_the_code_occurs() -> None:
    ways = [(False, True), (False, False), (True, False)]
    assert set(KINDS) == {(*way, exceptions) for way in ways for exceptions in range(MOST_EXCEPTIONS + 1)}


@pytest.mark.parametrize(("shift", "least"), [(-5, 30), (-8, 28), (-9, 25)])
def test_most_layers_that_end_in_relu_have_a_fused_scale(shift: int, least: int) -> None:
    assert sum(Channels.drawn(seed, (shift, shift), RELU).fused() is not None for seed in range(30)) >= least


def test_large_sums_have_no_fused_scale() -> None:
    """A fused scale would need more than the 24 bits of float32, because 2**14 different accumulators have the same
    result."""
    assert all(Channels.drawn(seed, (-14, -14), SIGNED, reach=1 << 22).fused() is None for seed in range(5))


def test_powers_of_two_have_no_fused_scale_if_results_have_two_signs() -> None:
    """Some scaled sums are halfway between two results. TFLite's first rounding rounds such sums up, whatever their
    sign is."""
    powers = np.full(16, 1 << 30), np.full(16, -4)
    assert Channels(*powers, 1 << 16, SIGNED, twice=True).fused() is None
    assert Channels(*powers, 1 << 16, RELU, twice=True).fused() is not None


def test_channels_whose_results_are_all_zero_have_a_fused_scale() -> None:
    rng = np.random.default_rng(0)
    significands, shifts = rng.integers(1 << 30, 1 << 31, 16), np.full(16, -6)
    significands[3], shifts[3] = 0, 0
    shifts[7] = -31
    fused = Channels(significands, shifts, 1 << 16, RELU, twice=True).fused()
    assert fused is not None
    for channel in (3, 7):
        assert {computed(fused, channel, each, RELU) for each in (-(1 << 16), -1, 0, 1, (1 << 16) - 1)} == {0}


def test_sums_that_exceed_int32_have_no_fused_scale() -> None:
    significands, shifts = np.full(16, (1 << 30) + 7), np.full(16, 4)
    assert Channels(significands, shifts, 1 << 20, RELU, twice=False).fused() is not None
    assert Channels(significands, shifts, 1 << 29, RELU, twice=False).fused() is None
