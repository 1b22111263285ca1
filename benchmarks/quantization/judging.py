"""Computes shares of correct results and their standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Counted:
    """The number of correct items in each input's result, such as characters of a text.

    Attributes:
        right, sizes: `[inputs]` numbers of correct items and of all items.
    """

    right: Array
    sizes: Array

    @property
    def share(self) -> float:
        return float(self.right.sum() / self.sizes.sum())

    @property
    def error(self) -> float:
        """Returns the standard error of a ratio of sums, over inputs (Cochran, Sampling Techniques, 2.11)."""
        return float(((self.right - self.share * self.sizes) ** 2).sum() ** 0.5 / self.sizes.sum())

    def more(self, other: Counted) -> tuple[float, float]:
        """Returns by how much the share exceeds that of `other` on the same inputs, and the standard error of the
        difference.
        """
        own, theirs = (each.right - each.share * each.sizes for each in (self, other))
        return self.share - other.share, float(((own - theirs) ** 2).sum() ** 0.5 / self.sizes.sum())

    def to_json(self) -> dict[str, list[float]]:
        return {"right": np.asarray(self.right, float).tolist(), "sizes": np.asarray(self.sizes, float).tolist()}

    @staticmethod
    def from_json(members: dict[str, list[float]]) -> Counted:
        return Counted(np.array(members["right"]), np.array(members["sizes"]))


def each(right: Any) -> Counted:
    """Returns a count in which each input has the same weight."""
    values = np.asarray(right, np.float64)
    return Counted(values, np.ones(len(values)))


def overlap(own: Array, real: Array) -> Counted:
    """Returns intersection over union of masks, which are packed bits `[inputs, bytes]`; 1 if both masks are empty."""
    first, second = np.unpackbits(own, axis=1), np.unpackbits(real, axis=1)
    both, either = (first & second).sum(axis=1), (first | second).sum(axis=1)
    return each(np.where(either > 0, both / np.maximum(either, 1), 1.0))
