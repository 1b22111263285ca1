"""The curve of `octet quantize --curve`. The page draws it with the same series."""

from __future__ import annotations

import re
from pathlib import Path

from service.api.control import page
from service.quantize.search.plot import BFLOAT16, FLOAT, MIXED, SERIES, WIDE, series_of, svg
from service.quantize.search.sensitivity import Point

INT8 = Point((), (), 0.9, 30.0)
CURVE = [INT8, Point(("a",), (), 0.95, 40.0), Point((), ("a", "b"), 0.96, 45.0), Point(("a",), ("b",), 1.0, 50.0)]


def test_a_point_belongs_to_the_series_of_its_types() -> None:
    assert [series_of(point) for point in CURVE] == [(FLOAT, WIDE), (FLOAT,), (WIDE,), (MIXED,)]
    assert series_of(Point((), (), 0.9, 1.0, bfloat16=("a",))) == (BFLOAT16,)


def test_lines_join_the_series_that_begin_in_int8() -> None:
    drawn = svg(CURVE, 100)
    assert drawn.count(f'stroke="{FLOAT.color}"') == drawn.count(f'stroke="{WIDE.color}"') == 1
    assert "0 in float, 2 of 16x8: 96.00%, 45.0 dB" in drawn


def test_bars_show_two_standard_errors() -> None:
    few, many = (_longest_bar(svg(CURVE, inputs)) for inputs in (25, 10_000))
    assert few > 5 * many
    assert 'stroke="#5b6470"' in svg(CURVE, 25)


def _longest_bar(drawn: str) -> float:
    bars = re.findall(rf'y1="([\d.]+)" x2="[\d.]+" y2="([\d.]+)" stroke="{MIXED.color}"', drawn)
    return max(abs(float(one) - float(other)) for one, other in bars)


def test_the_colours_are_those_of_the_page() -> None:
    style = (Path(page.__file__).parent / "assets" / "style.css").read_text()
    assert [each.name for each in SERIES if f"{each.variable}: {each.color};" not in style] == []
