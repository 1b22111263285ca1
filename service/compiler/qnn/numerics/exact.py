"""Sums of products of integers, exact, at the speed of floating point.

A matrix product in float32 is exact where no sum that can occur exceeds 2**24, in whatever order it is added up and
whether a product is rounded before it is added or not: every intermediate result is then an integer that float32
holds. The bound is the largest |x| times the largest sum of |w| over a filter, taken of the values themselves. Longer
sums are taken in parts, which are added in float64; what is too wide for that is float64 altogether, which is exact
up to 2**53.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from service.compiler.qnn.numerics.formula import Array

_EXACT = 1 << 24  # float32
_MOST_PARTS = 16  # of more, float64 at once is faster
_WINDOW_BYTES = 4 << 20  # of copied windows at a time, about what the second level of cache holds


class Filters:
    """The weights of a convolution or dense layer, ready to be multiplied with any input.

    Args:
        weights: `[G, F, K]` integers less their zero point, in float64: groups, filters of each, products of each.
        largest: no |x| is larger.
    """

    def __init__(self, weights: Array, largest: float) -> None:
        self._ends = _parts(weights, largest)
        dtype = np.float64 if self._ends is None else np.float32
        self._weights = np.ascontiguousarray(weights.transpose(0, 2, 1), dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that the inputs have to have."""
        return self._weights.dtype

    def products(self, windows: Array) -> Array:
        """`[G, M, K]` -> `[G, M, F]`, float64."""
        if self._ends is None or len(self._ends) == 1:
            return np.asarray(np.matmul(windows, self._weights), np.float64)
        starts = [0, *self._ends[:-1]]
        total = np.zeros((*windows.shape[:2], self._weights.shape[2]))
        for start, end in zip(starts, self._ends, strict=True):
            total += np.matmul(windows[:, :, start:end], self._weights[:, start:end])
        return total


def _parts(weights: Array, largest: float) -> list[int] | None:
    """The ends of the parts of K products that float32 adds exactly; None where there would be too many parts."""
    length = weights.shape[2]
    magnitudes = np.abs(weights)
    for parts in range(1, min(_MOST_PARTS, length) + 1):
        ends = [length * (part + 1) // parts for part in range(parts)]
        sums = np.add.reduceat(magnitudes, [0, *ends[:-1]], axis=2)
        if largest * sums.max() <= _EXACT:
            return ends
    return None


def sliding(
    padded: Array,
    output: tuple[int, int],
    kernel: tuple[int, int],
    strides: Sequence[int],
    steps: Sequence[int],
) -> Array:
    """A view `[N, OH, OW, KH, KW, C]` of `[N, H, W, C]`: the window of each output pixel."""
    n, _, _, channels = padded.shape
    image, row, column, channel = padded.strides
    return np.lib.stride_tricks.as_strided(
        padded,
        (n, *output, *kernel, channels),
        (image, row * strides[0], column * strides[1], row * steps[0], column * steps[1], channel),
        writeable=False,
    )


def bands(windows: Array) -> Iterator[slice]:
    """Output rows to be computed at a time, so that the copies of their windows stay small."""
    rows = windows.shape[1]
    height = max(1, int(_WINDOW_BYTES * rows // max(1, windows.size * windows.itemsize)))
    return (slice(first, min(first + height, rows)) for first in range(0, rows, height))
