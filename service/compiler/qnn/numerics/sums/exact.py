"""Exact sums of products of integers, at the speed of floating point.

A matrix product in float32 is exact if no possible sum exceeds 2**24. Every intermediate result is then an integer that
float32 can represent, in any order of the additions and with or without fused multiply-adds. The bound on a sum is the
largest |x| times the largest sum of |w| over a filter, computed from the actual weights. Longer sums are divided into
parts, and the parts are added in float64. If there would be too many parts, the whole product is computed in float64,
which is exact up to 2**53.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from service.core.models.arrays import Array

_EXACT = 1 << 24  # the limit of float32
_MOST_PARTS = 16  # with more parts, one product in float64 is faster
_WINDOW_BYTES = 4 << 20  # bytes of windows that are copied at a time, about the size of the second-level cache


class Filters:
    """The weights of a convolution or dense layer, prepared for multiplication with any input.

    Args:
        weights: `[G, F, K]` float64 integers, less their zero point: groups, filters of a group, products of a filter.
        largest: an upper bound of |x|.
    """

    def __init__(self, weights: Array, largest: float) -> None:
        self._ends = _parts(weights, largest)
        dtype = np.float64 if self._ends is None else np.float32
        self._weights = np.ascontiguousarray(weights.transpose(0, 2, 1), dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that the inputs must have."""
        return self._weights.dtype

    def products(self, windows: Array) -> Array:
        """Multiplies `[G, M, K]` windows by the filters, giving `[G, M, F]` float64."""
        if self._ends is None or len(self._ends) == 1:
            return np.asarray(np.matmul(windows, self._weights), np.float64)
        starts = [0, *self._ends[:-1]]
        total = np.zeros((*windows.shape[:2], self._weights.shape[2]))
        for start, end in zip(starts, self._ends, strict=True):
            total += np.matmul(windows[:, :, start:end], self._weights[:, start:end])
        return total


def _parts(weights: Array, largest: float) -> list[int] | None:
    """Returns the ends of the parts of K that float32 adds exactly, or None if there would be too many parts."""
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
    """Returns the window of each output pixel, as a view `[N, OH, OW, KH, KW, C]` of `[N, H, W, C]`."""
    n, _, _, channels = padded.shape
    image, row, column, channel = padded.strides
    return np.lib.stride_tricks.as_strided(
        padded,
        (n, *output, *kernel, channels),
        (image, row * strides[0], column * strides[1], row * steps[0], column * steps[1], channel),
        writeable=False,
    )


def bands(windows: Array) -> Iterator[slice]:
    """Returns ranges of output rows. One range is computed at a time, so that the copies of its windows stay small."""
    rows = windows.shape[1]
    height = max(1, int(_WINDOW_BYTES * rows // max(1, windows.size * windows.itemsize)))
    return (slice(first, min(first + height, rows)) for first in range(0, rows, height))
