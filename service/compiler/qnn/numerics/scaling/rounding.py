"""Rounding in the oracle, and the number of ties. A tie is a value exactly halfway between two integers.

Rounding modes differ only at ties, so the inputs that check a build are chosen to reach ties
(`compiler.children.probing`). A formula that rounds by these functions reports its ties; `watch` counts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from service.core.models.arrays import Array


@dataclass
class Ties:
    """The number of ties that were rounded inside a `watch` block."""

    count: int = 0


_watched: list[Ties] = []


@contextmanager
def watch() -> Iterator[Ties]:
    """Counts ties until the block ends, in this thread's calls; blocks may be nested."""
    ties = Ties()
    _watched.append(ties)
    try:
        yield ties
    finally:
        _watched.remove(ties)


def report_ties(ties: Array) -> None:
    """Counts the true elements of `ties` for all active `watch` blocks."""
    if _watched:
        count = int(np.count_nonzero(ties))
        for each in _watched:
            each.count += count


def is_watched() -> bool:
    """Returns true inside a `watch` block; elsewhere, ties need not be computed."""
    return bool(_watched)


def round_even(values: Array) -> Array:
    """Rounds to the nearest integer, halves to the even one."""
    if _watched:
        report_ties(np.abs(values - np.trunc(values)) == 0.5)
    return np.asarray(np.rint(values))
