"""Values of inputs that become constants are parsed, limited, and part of the build's options."""

from __future__ import annotations

from typing import Any

import pytest

from service.core.builds.fixed import MOST_FIXED, MOST_VALUES, check_fixed, fixed_of, parse_fixed, with_fixed
from service.core.builds.options import with_counts, with_shapes
from service.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("", {}),
        ("sr=16000", {"sr": [16000]}),
        ("sr=16000;mask=1, 0,-1", {"sr": [16000], "mask": [1, 0, -1]}),
        ("a=b=1.5", {"a=b": [1.5]}),
        ("x=.5,1e-3,+2", {"x": [0.5, 0.001, 2]}),
        ("training=False", {"training": [False]}),
    ],
)
def test_values_are_parsed(text: str, fixed: dict[str, list[float]]) -> None:
    assert parse_fixed(text) == fixed
    assert [type(each) for values in parse_fixed(text).values() for each in values] == [
        type(each) for values in fixed.values() for each in values
    ]


@pytest.mark.parametrize(
    "text", ["sr", "=1", "sr=", "sr=a", "sr=1,", "sr=nan", "sr=1e999", "sr=1;sr=2", "x=٣", "x=1_0"]
)
def test_malformed_values_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_fixed(text)


@pytest.mark.parametrize(
    "given",
    [
        {"": 1},
        {"x": []},
        {"x": [0] * (MOST_VALUES + 1)},
        {"x": float("inf")},
        {"x": ["1"]},
        {str(number): 1 for number in range(MOST_FIXED + 1)},
    ],
)
def test_values_of_python_and_the_api_have_the_same_limits(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        check_fixed(given)


def test_one_number_is_a_list_of_one() -> None:
    assert check_fixed({"sr": 16000, "x": (1, 2)}) == {"sr": [16000], "x": [1, 2]}


def test_values_are_options_of_the_build() -> None:
    assert with_fixed({"batch": 2}, {}) == {"batch": 2}
    options = with_fixed(with_shapes({"x": [1, 4]}), {"sr": [16000]})
    assert options == {"input_shapes": {"x": [1, 4]}, "fixed_inputs": {"sr": [16000]}}
    assert fixed_of(options) == {"sr": [16000]}
    counted = with_counts(options)
    assert counted is not None
    assert fixed_of(counted) == {"sr": [16000]}
