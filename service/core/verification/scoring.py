"""Scores of a model on labelled inputs: the share of right classes, and the sampling error of a score.

The score of a classifier on a data set is an estimate, because the data set is a sample. Each `Metric` therefore has a
95 % confidence interval. The interval of a share is Wilson's (E. B. Wilson, "Probable inference, the law of
succession, and statistical inference", 1927), which is right for few inputs and for shares of 0 and 1 too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.arrays import Array

_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution


@dataclass(frozen=True)
class Metric:
    """A score, and the interval that contains the score on infinitely many such inputs with a confidence of 95 %.

    Attributes:
        value: the score. A share is between 0 and 1.
        low, high: the interval.
        inputs: the number of inputs that the score was computed from.
    """

    value: float
    low: float
    high: float
    inputs: int

    def to_json(self) -> dict[str, float | int]:
        """Returns the attributes by name."""
        return {"value": self.value, "low": self.low, "high": self.high, "inputs": self.inputs}

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> Metric:
        """Parses the result of `to_json`.

        Raises:
            LookupError, TypeError, ValueError: `members` is not of that form.
        """
        value, low, high = (float(members[name]) for name in ("value", "low", "high"))
        inputs = members["inputs"]
        if not all(map(math.isfinite, (value, low, high))) or not isinstance(inputs, int) or inputs < 1:
            raise ValueError("a metric is not finite, or has no inputs")
        return Metric(value, low, high, inputs)


def share_of(holds: Sequence[bool]) -> Metric:
    """Returns the share of inputs for which something holds, with Wilson's interval. `holds` must not be empty."""
    inputs = len(holds)
    share = sum(holds) / inputs
    center = share + _Z**2 / (2 * inputs)
    half = _Z * math.sqrt(share * (1 - share) / inputs + _Z**2 / (4 * inputs**2))
    scale = 1 + _Z**2 / inputs
    low, high = (center - half) / scale, (center + half) / scale
    # Rounding may otherwise exclude the share itself, if it is 0 or 1.
    return Metric(share, max(0.0, min(low, share)), min(1.0, max(high, share)), inputs)


def mean_of(values: Sequence[float]) -> Metric:
    """Returns the mean of the inputs' scores, with the interval of the normal distribution. `values` must not be
    empty. With one input, the interval is the score alone.
    """
    inputs, mean = len(values), float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(inputs) if inputs > 1 else 0.0
    return Metric(mean, mean - _Z * error, mean + _Z * error, inputs)


def class_of(scores: Array) -> int:
    """Returns the class with the largest score; the lowest of equal ones."""
    return int(scores.reshape(-1).argmax())


def largest_classes(scores: Array, count: int) -> list[int]:
    """Returns the `count` classes with the largest scores, the largest first. Equal scores are ordered by class."""
    return [int(index) for index in np.argsort(-scores.reshape(-1).astype(np.float64), kind="stable")[:count]]


def check_label(label: int, classes: int) -> None:
    """Raises `InvalidInput` if `label` is not the index of one of `classes` classes."""
    if not 0 <= label < classes:
        raise InvalidInput(
            f"the label {label} is not one of the model's {classes} classes", hint="the first class is 0"
        )


def rank_of(scores: Array, label: int) -> int:
    """Returns the number of classes that a classifier prefers to `label`; 0 if `label` is its result (`class_of`).

    Of two classes with equal scores, the lower one is preferred. NaN is preferred to all other scores, as `argmax`
    does.

    Args:
        scores: one score for each class, in any shape.

    Raises:
        InvalidInput: `label` is not the index of a class.
    """
    row = scores.reshape(-1)
    check_label(label, row.size)
    score = row[label]
    equal = row == score
    return int((~(row < score)).sum() - equal.sum() + equal[:label].sum())


def classes_of(outputs: Sequence[Array]) -> list[int]:
    """Returns the index of the largest value in each output of a classifier."""
    return [class_of(output) for output in outputs]


def accuracy(classes: Sequence[int], labels: Sequence[int | None]) -> Mapping[str, float | int]:
    """Returns the fraction of right classes among the inputs that have a label, and its (binomial) standard error."""
    right = [found == label for found, label in zip(classes, labels, strict=False) if label is not None]
    share = sum(right) / len(right) if right else 0.0
    error = (share * (1 - share) / len(right)) ** 0.5 if right else 0.0
    return {"right": sum(right), "inputs": len(right), "share": share, "standard_error": error}
