"""Tests of comparing outputs: which values are equal, and how large a difference is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.verification.agreement import OutputComparison
from service.core.verification.comparison import compare_output, compare_outputs, equal_values

NAN, INF = np.float32(np.nan), np.float32(np.inf)
OTHER_NAN = np.array([0xFFC12345], np.uint32).view(np.float32)[0]  # differs from NAN in its sign and its payload


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (NAN, NAN, True),
        (NAN, OTHER_NAN, True),
        (INF, INF, True),
        (-INF, -INF, True),
        (INF, -INF, False),
        (NAN, np.float32(1), False),
        (NAN, INF, False),
        (np.float32(0), np.float32(-0.0), True),
        (np.float32(1), np.nextafter(np.float32(1), INF), False),
    ],
)
def test_nan_equals_nan_and_infinities_compare_by_sign(one: np.float32, other: np.float32, equal: bool) -> None:
    assert equal_values(np.array([one]), np.array([other])).tolist() == [equal]


def test_two_nans_do_not_differ() -> None:
    found = compare_output([(np.array([NAN, 1, INF]), np.array([OTHER_NAN, 1, INF]))])
    assert (found.values, found.equal, found.largest_difference, found.range) == (3, 3, 0.0, 1.0)


@pytest.mark.parametrize("other", [np.float32(1), INF, -INF])
def test_a_nan_and_a_number_have_no_difference(other: np.float32) -> None:
    found = compare_output([(np.array([NAN, 1]), np.array([other, 1]))])
    assert (found.equal, found.largest_difference, found.relative_difference) == (1, None, None)


def test_the_range_covers_all_inputs_and_zero() -> None:
    ours, theirs = np.array([4.0, 2.0]), np.array([4.5, 2.0])
    found = compare_output([(ours, theirs), (-theirs, -theirs)])
    assert (found.largest_difference, found.range) == (0.5, 9.0)
    assert found.relative_difference == pytest.approx(0.5 / 9)
    assert compare_output([(ours, theirs)]).range == 4.5


def test_integers_differ_in_steps() -> None:
    found = compare_output([(np.array([-128, 3], np.int8), np.array([127, 3], np.int8))])
    assert (found.is_real, found.equal, found.largest_difference, found.relative_difference) == (False, 1, 255, None)


@pytest.mark.parametrize("wanted", [np.zeros(3, np.int8), np.zeros((2, 1), np.int8), np.zeros(2, np.uint8)])
def test_another_shape_or_type_has_no_largest_difference(wanted: np.typing.NDArray[np.generic]) -> None:
    found = compare_output([(np.zeros(2, np.int8), wanted)])
    assert (found.values, found.equal, found.largest_difference) == (wanted.size, 0, None)


def test_outputs_are_compared_for_the_inputs_that_are_named() -> None:
    outputs: list[list[np.typing.NDArray[np.generic]]]
    outputs = [[np.array([number], np.int8), np.array([0.5], np.float32)] for number in range(3)]
    expected = {f"{number}.{position}": outputs[number][position] for number in (0, 2) for position in (0, 1)}
    expected["2.0"] = np.array([7], np.int8)
    found = compare_outputs(outputs, expected, [0, 2])
    assert found.inputs == (0, 2)
    assert [(each.values, each.equal, each.largest_difference) for each in found.outputs] == [(2, 1, 5), (2, 2, 0)]


@pytest.mark.parametrize(("dtype", "is_reproduced"), [(np.float64, True), (np.float32, False)])
def test_only_float64_may_differ_in_the_last_places(dtype: type[np.floating[Any]], is_reproduced: bool) -> None:
    wanted = np.array([1.0, 2.0], dtype)
    compared = compare_output([(np.nextafter(wanted, dtype(3)), wanted)])
    assert not compared.is_equal
    assert compared.is_reproduced is is_reproduced
    assert OutputComparison.from_json(compared.to_json()) == compared
