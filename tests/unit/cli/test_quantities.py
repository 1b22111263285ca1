"""Tests of formatting quantities with three digits and a unit."""

from __future__ import annotations

import pytest

from service.cli.quantities import count, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000008, "0.80 µs"),
        (0.00003714, "37.1 µs"),
        (0.0009996, "1000 µs"),
        (0.001, "1.00 ms"),
        (0.00856, "8.56 ms"),
        (0.14812, "148 ms"),
        (12.3, "12.3 s"),
    ],
)
def test_a_duration_has_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (53.66, "53.7"), (999, "999"), (1000, "1.00 k"), (4089184256, "4.09 G"), (115_600_000, "116 M")],
)
def test_a_count_has_the_prefix_that_fits(number: float, text: str) -> None:
    assert count(number) == text
