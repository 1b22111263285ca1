from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from service.core.models.ranges import ABOVE, HEAD, INSIDE, Counts, LiveRange, StoredRange, check_counts, merge_counts
from tests.support.live_counts import counts_of

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


def test_values_beyond_both_bounds_are_clipped() -> None:
    live = LiveRange(PLAIN, counts_of(below=2, above=3, inside=95, smallest=-200, largest=300))
    assert (live.values, live.clipped, live.clipped_ratio) == (100, 5, 0.05)
    assert (live.low_real, live.high_real) == (-101.5, 148.5)
    assert live.is_outside


def test_one_clipped_value_in_a_hundred_is_not_outside() -> None:
    assert not LiveRange(PLAIN, counts_of(above=1, inside=99)).is_outside
    assert LiveRange(PLAIN, counts_of(above=2, inside=99)).is_outside


def test_values_beyond_an_activation_are_not_clipped() -> None:
    assert LiveRange(RELU6, counts_of(below=50, above=50)).clipped == 0
    relu = replace(RELU6, scale=0.1)
    assert LiveRange(relu, counts_of(below=50, above=50)).clipped == 50


def test_a_tensor_without_values_is_not_outside() -> None:
    assert not LiveRange(PLAIN, counts_of(inside=0)).is_outside


def test_merged_counts_are_sums_and_extremes() -> None:
    merged = merge_counts(counts_of(below=1, smallest=-9, largest=5), counts_of(above=2, smallest=-3, largest=7))
    assert merged == counts_of(below=1, above=2, inside=200, smallest=-9, largest=7)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found[:-1],
        lambda found: (*found, 0),
        lambda found: (-1, *found[1:]),
        lambda found: (1000, *found[1:]),
        lambda found: (*found[:-1], 1 << 63),
        lambda found: (*found[:-1], 0.5),
    ],
)
def test_malformed_counts_are_refused(change: Callable[[Counts], Counts]) -> None:
    assert check_counts(counts_of()) == counts_of()
    with pytest.raises(ValueError, match="counts"):
        check_counts(change(counts_of()))


def test_a_proposed_range_covers_all_but_rare_live_values() -> None:
    found = list(counts_of(inside=9_000, smallest=-128, largest=1_000))
    found[HEAD + 2 * INSIDE + 10], found[ABOVE] = 1_000, 1_000  # ten bins beyond the range
    found[HEAD + 2 * INSIDE + 40] = 1  # one value of 10,001
    proposed = LiveRange(PLAIN, tuple(found)).proposed
    assert proposed == (PLAIN.low_real, PLAIN.real(PLAIN.bin_edge(2 * INSIDE + 11) - 1))


def test_a_proposed_range_ends_at_the_extremes_if_many_values_are_beyond_the_histogram() -> None:
    live = LiveRange(PLAIN, counts_of(below=50, above=50, inside=100, smallest=-1_000, largest=2_000))
    assert live.proposed == (PLAIN.real(-1_000), PLAIN.real(2_000))


def test_a_range_that_live_data_does_not_leave_has_no_proposal() -> None:
    assert LiveRange(PLAIN, counts_of()).proposed is None


def test_the_end_of_an_activation_is_not_widened() -> None:
    relu = replace(RELU6, scale=0.1)
    live = LiveRange(relu, counts_of(below=50, above=50, smallest=-500, largest=500))
    assert live.proposed == (relu.low_real, relu.real(500))
