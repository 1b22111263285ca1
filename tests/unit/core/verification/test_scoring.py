"""Scores of classifiers and their sampling error."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.core.verification.scoring import (
    Metric,
    accuracy,
    class_of,
    largest_classes,
    mean_of,
    rank_of,
    share_of,
)


def test_the_interval_of_a_share_is_wilsons() -> None:
    """Its bounds are those p for which |share - p| = z sqrt(p (1 - p) / n)."""
    found = share_of([True] * 81 + [False] * 19)
    assert (found.value, found.inputs) == (0.81, 100)
    assert found.low < 0.81 < found.high
    for bound in (found.low, found.high):
        assert abs(0.81 - bound) == pytest.approx(1.959963984540054 * (bound * (1 - bound) / 100) ** 0.5, rel=1e-12)


def test_the_interval_of_a_perfect_score_is_not_empty() -> None:
    """With ten of ten, Wilson's interval is 1 / (1 + z**2 / 10) to 1."""
    found = share_of([True] * 10)
    assert found.low == pytest.approx(1 / (1 + 1.959964**2 / 10), abs=1e-6)
    assert found.high == 1
    assert share_of([False]).low == 0


def test_the_interval_contains_the_true_share_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(1)
    found = [share_of((rng.random(60) < 0.9).tolist()) for _ in range(2000)]
    covered = np.mean([metric.low <= 0.9 <= metric.high for metric in found])
    assert 0.93 < covered < 0.97  # 0.95 with a standard error of 0.005, and Wilson's own error for 60 inputs


def test_the_mean_of_scores() -> None:
    found = mean_of([1.0, 2.0, 3.0])
    assert (found.value, found.inputs) == (2.0, 3)
    assert found.high - 2 == pytest.approx(1.959964 / 3**0.5)
    assert mean_of([5.0]) == Metric(5.0, 5.0, 5.0, 1)


def test_the_rank_of_a_label_orders_equal_scores_by_class() -> None:
    scores = np.array([[3, 9, 9, 1]], np.uint8)
    assert [rank_of(scores, label) for label in range(4)] == [2, 0, 1, 3]
    assert class_of(scores) == 1
    assert largest_classes(scores, 3) == [1, 2, 0]


def test_nan_is_never_right_by_accident() -> None:
    assert rank_of(np.array([1.0, np.nan, 0.5]), 0) == 1
    assert rank_of(np.array([np.nan, 1.0, 0.5]), 0) > 0


def test_a_label_that_is_no_class_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the label 10 is not one of the model's 10 classes"):
        rank_of(np.zeros(10), 10)


def test_a_metric_survives_json() -> None:
    metric = share_of([True, False])
    assert Metric.from_json(metric.to_json()) == metric
    with pytest.raises(ValueError, match="not finite"):
        Metric.from_json({**metric.to_json(), "value": float("nan")})


def test_accuracy_counts_labelled_inputs() -> None:
    counted = accuracy([1, 2, 3, 4, 5], [1, 2, None, 0, 5])
    assert (counted["right"], counted["inputs"], counted["share"]) == (3, 4, 0.75)
    assert counted["standard_error"] == pytest.approx((0.75 * 0.25 / 4) ** 0.5)
