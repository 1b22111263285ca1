from __future__ import annotations

from dataclasses import replace

import pytest

from service.core.models.ranges import INSIDE, StoredRange

RELU6 = StoredRange("relu6", 6 / 255, -128, -128, 127)
PLAIN = StoredRange("plain", 0.5, 3, -128, 127)
NARROW = StoredRange("narrow", 0.25, 0, -8, 7)


def test_a_code_is_a_real_value_in_steps_from_the_zero_point() -> None:
    assert (PLAIN.low_real, PLAIN.high_real) == (-65.5, 62.0)
    assert PLAIN.real(3) == 0


@pytest.mark.parametrize("stored", [RELU6, PLAIN, NARROW], ids=lambda each: each.tensor)
def test_the_middle_third_of_the_histogram_covers_the_range(stored: StoredRange) -> None:
    assert stored.bin_edge(INSIDE) == stored.low
    assert stored.bin_edge(2 * INSIDE) > stored.high


def test_activations_are_recognized_by_the_ends_of_the_range() -> None:
    assert RELU6.is_low_activation
    assert RELU6.is_high_activation
    assert not PLAIN.is_low_activation
    assert not PLAIN.is_high_activation
    assert not replace(RELU6, scale=6.1 / 255).is_high_activation


def test_a_range_is_the_same_after_a_round_trip() -> None:
    assert StoredRange.from_json(PLAIN.to_json()) == PLAIN


@pytest.mark.parametrize("change", [{"scale": 0.0}, {"scale": float("nan")}, {"low": 200}, {"high": 1 << 60}])
def test_a_malformed_range_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        StoredRange.from_json(PLAIN.to_json() | change)
