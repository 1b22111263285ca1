"""The inputs for which a model disagrees with the labels or with the reference."""

from __future__ import annotations

import numpy as np

from service.core.models.arrays import Array
from service.evaluate.cases import Case, cases_of
from service.evaluate.running import Outputs

NAMES = ["a", "b", "c"]


def outputs(*rows: list[int]) -> Outputs:
    array: Array = np.array(rows, np.uint8).reshape(len(rows), 1, -1)
    return Outputs((array,))


def test_each_input_is_compared_with_its_label_and_the_reference() -> None:
    mine, theirs = outputs([9, 1], [1, 9], [9, 1]), outputs([9, 1], [9, 3], [9, 2])
    right, other, close = cases_of(NAMES, ["0", "1", "1"], mine, theirs, [], True)
    assert not right.is_shown
    assert (other.has_other_class, other.is_wrong, other.difference) == (True, False, 8.0)
    assert (close.has_other_class, close.is_wrong, close.is_equal, close.difference) == (False, True, False, 1.0)


def test_other_results_come_before_wrong_ones_and_these_before_small_differences() -> None:
    other = Case(2, "c", None, (0,), (1,), False, 1.0)
    wrong = Case(1, "b", "1", (0,), (0,), True, 0.0)
    unequal = Case(0, "a", "0", (0,), (0,), False, 9.0)
    assert sorted([unequal, wrong, other], key=lambda case: case.order) == [other, wrong, unequal]


def test_a_difference_with_nan_is_not_a_number() -> None:
    mine, theirs = Outputs((np.array([[np.nan]]),)), Outputs((np.array([[1.0]]),))
    (case,) = cases_of(["a"], [None], mine, theirs, [], False)
    assert (case.is_equal, case.difference, case.is_shown) == (False, None, True)


def test_a_users_score_shows_every_input() -> None:
    cases = cases_of(NAMES, [None] * 3, outputs([1], [1], [1]), None, [0.5, 0.1, 0.9], False)
    assert [case.name for case in sorted(cases, key=lambda case: case.order) if case.is_shown] == ["b", "a", "c"]
