"""The inputs for which a model disagrees with the labels or with the reference runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.verification.comparison import equal_values, largest_difference
from service.core.verification.scoring import largest_classes
from service.evaluate.metrics import TOP
from service.evaluate.running import Outputs


@dataclass(frozen=True)
class Case:
    """An input and its results.

    Attributes:
        number: the number of the input.
        name: the name of the picture, or the number of the input.
        label: the text of the label, or None.
        classes, reference_classes: the classes with the largest results, the largest first; empty if the model does not
            classify, or without a reference.
        is_equal: true if all outputs equal those of the reference; None without a reference.
        difference: the largest difference from the reference's outputs; None without a reference, or if a value is NaN
            or infinite.
        score: the number that a user's function returned; None without one.
    """

    number: int
    name: str
    label: str | None
    classes: tuple[int, ...] = ()
    reference_classes: tuple[int, ...] = ()
    is_equal: bool | None = None
    difference: float | None = None
    score: float | None = None

    @property
    def has_other_class(self) -> bool:
        """True if the reference has another result."""
        return bool(self.reference_classes) and self.classes[:1] != self.reference_classes[:1]

    @property
    def is_wrong(self) -> bool:
        """True if the result of a classifier is not the label."""
        return bool(self.classes) and self.label is not None and str(self.classes[0]) != self.label

    @property
    def is_shown(self) -> bool:
        return self.has_other_class or self.is_wrong or self.is_equal is False or self.score is not None

    @property
    def order(self) -> tuple[bool, bool, float, float, int]:
        """The key by which cases are sorted: first those with another result than the reference's, then wrong ones,
        then those with a low score, then those with a large difference.
        """
        difference = math.inf if self.difference is None else self.difference
        return not self.has_other_class, not self.is_wrong, self.score or 0.0, -difference, self.number

    def to_json(self) -> dict[str, Any]:
        return {
            "input": self.name,
            "label": self.label,
            "classes": list(self.classes),
            "reference_classes": list(self.reference_classes),
            "equal": self.is_equal,
            "difference": self.difference,
            **({"score": self.score} if self.score is not None else {}),
        }


def cases_of(
    names: Sequence[str],
    labels: Sequence[str | None],
    outputs: Outputs,
    expected: Outputs | None,
    scores: Sequence[float | None],
    is_classifier: bool,
) -> list[Case]:
    """Returns a case for each input, in the order of the inputs.

    Args:
        expected: the outputs of the reference, if there is one.
        scores: the result of a user's function for each input; empty without one.
        is_classifier: true if the first output has one value for each class.
    """
    return [
        Case(
            number,
            name,
            label,
            _largest(outputs, number, is_classifier),
            _largest(expected, number, is_classifier) if expected else (),
            _is_equal(outputs, expected, number) if expected else None,
            _difference(outputs, expected, number) if expected else None,
            scores[number] if scores else None,
        )
        for number, (name, label) in enumerate(zip(names, labels, strict=True))
    ]


def _largest(outputs: Outputs, number: int, is_classifier: bool) -> tuple[int, ...]:
    return tuple(largest_classes(outputs.arrays[0][number], TOP)) if is_classifier else ()


def _is_equal(outputs: Outputs, expected: Outputs, number: int) -> bool:
    pairs = zip(outputs.of_input(number), expected.of_input(number), strict=True)
    return all(bool(np.all(equal_values(one, two))) for one, two in pairs)


def _difference(outputs: Outputs, expected: Outputs, number: int) -> float | None:
    pairs = zip(outputs.of_input(number), expected.of_input(number), strict=True)
    found = [largest_difference(one, two) for one, two in pairs]
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None
