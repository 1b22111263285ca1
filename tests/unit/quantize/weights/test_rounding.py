"""Adaptive rounding of weights."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.models.arrays import Array
from service.quantize.weights.rounding import rounded_adaptively


def problem(seed: int, groups: int, rows: int, size: int, columns: int) -> tuple[Array, Array]:
    """Returns weights in steps, and the sums of products of correlated columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (groups, size, columns)) + rng.normal(1, 1, (groups, 1, columns))
    return rng.uniform(-127, 127, (groups, rows, size)), x @ x.transpose(0, 2, 1)


def squared_error(weights: Array, steps: Array, products: Array) -> Array:
    """Returns the squared error of each row's results, divided by the square of the row's scale."""
    errors = steps - weights
    return np.asarray(((errors @ products) * errors).sum(axis=1))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 5), st.integers(1, 300), st.integers(1, 50))
def test_weights_move_by_at_most_one_step_and_no_row_gets_worse(
    seed: int, groups: int, rows: int, size: int, columns: int
) -> None:
    weights, products = problem(seed, groups, rows, size, columns)
    made = rounded_adaptively(weights, products, 127)
    nearest = np.rint(weights)
    assert (np.abs(made - weights) < 1 + 1e-12).all(), "a weight becomes one of the two steps next to it"
    assert (np.abs(made - nearest) <= 1).all()
    assert (np.abs(made) <= 127).all()
    for own, steps, near, gram in zip(weights, made, nearest, products, strict=True):
        before = squared_error(own, near, gram)
        assert (squared_error(own, steps, gram) <= before * (1 + 1e-9) + 1e-9).all()


def test_errors_of_correlated_columns_are_less_than_half_of_those_of_nearest_rounding() -> None:
    weights, products = problem(0, 1, 16, 96, 400)
    made = rounded_adaptively(weights, products, 127)
    before = squared_error(weights[0], np.rint(weights[0]), products[0]).sum()
    assert squared_error(weights[0], made[0], products[0]).sum() < before / 2


def test_weights_of_zero_columns_are_rounded_to_the_nearest() -> None:
    weights, _ = problem(1, 2, 3, 5, 7)
    np.testing.assert_array_equal(rounded_adaptively(weights, np.zeros((2, 5, 5)), 127), np.rint(weights))
