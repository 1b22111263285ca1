"""Pooling windows over images of real values: the largest element of each window, or the average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from service.compiler.importers.real import Real
from service.compiler.qnn.graph import shape_of

MOST_PLACES = 1 << 10  # limit of the positions in a window, each of which becomes an operator

Pair = tuple[int, int]
Sides = tuple[int, int, int, int]
Combine = Callable[[relax.Expr, relax.Expr], relax.Call]


@dataclass(frozen=True)
class Windows:
    """The positions of windows.

    Attributes:
        axes: the axes of rows and columns.
        padding: top, left, bottom, right. No window is entirely inside the padding.
    """

    axes: Pair
    size: Pair
    strides: Pair
    padding: Sides

    @property
    def _sides(self) -> list[Pair]:
        top, left, bottom, right = self.padding
        return [(top, bottom), (left, right)]

    def padded(self, real: Real, fill: float) -> relax.Expr:
        """Returns the image surrounded by `fill`."""
        if not any(self.padding):
            return real.x
        widths = [(0, 0)] * len(shape_of(real.x))
        for axis, sides in zip(self.axes, self._sides, strict=True):
            widths[axis] = sides
        return real(relax.op.nn.pad(real.x, [each for pair in widths for each in pair], pad_value=fill))

    def shifted(self, real: Real, padded: relax.Expr) -> list[relax.Expr]:
        """Returns an image for each position in the window, row by row. Each contains the elements that the windows
        have at that position.
        """
        shape = shape_of(padded)
        counts = [
            (shape[axis] - size) // step for axis, size, step in zip(self.axes, self.size, self.strides, strict=True)
        ]
        taken = []
        for first in product(*map(range, self.size)):
            ends = [at + count * step + 1 for at, count, step in zip(first, counts, self.strides, strict=True)]
            taken.append(real(relax.op.strided_slice(padded, list(self.axes), list(first), ends, list(self.strides))))
        return taken

    def counts(self, shape: tuple[int, ...], counted: Sides) -> NDArray[np.float64]:
        """Returns the number of elements of each window along `axes` of an image of `shape`. Elements outside of the
        image are included if they are in the part `counted` of the padding.
        """
        top, left, bottom, right = counted
        rows = []
        parts = zip(self.axes, self._sides, ((top, bottom), (left, right)), self.size, self.strides, strict=True)
        for axis, (before, after), (first, last), size, step in parts:
            extent = shape[axis]
            starts = np.arange((extent + before + after - size) // step + 1) * step - before
            rows.append(np.minimum(starts + size, extent + last) - np.maximum(starts, -first))
        sizes = [1] * len(shape)
        for axis, row in zip(self.axes, rows, strict=True):
            sizes[axis] = len(row)
        return np.asarray(rows[0][:, np.newaxis] * rows[1], np.float64).reshape(sizes)


def largest(real: Real, windows: Windows) -> relax.Expr:
    """Returns the largest element of each window. For windows of one element, this is a slice."""
    return _combined(real, windows.shifted(real, windows.padded(real, -np.inf)), relax.op.maximum)


def average(real: Real, windows: Windows, counted: Sides = (0, 0, 0, 0)) -> relax.Call:
    """Adds the elements of each window in float64, divides the sum by the number of elements that count, and rounds
    once.
    """
    shape, wide = shape_of(real.x), Real(lambda expr, _: real(expr), real(relax.op.astype(real.x, "float64")))
    parts = windows.shifted(wide, windows.padded(wide, 0.0))
    total = real(_combined(wide, parts, relax.op.add)) if len(parts) > 1 else parts[0]
    counts = relax.const(windows.counts(shape, counted), "float64")
    return relax.op.astype(real(relax.op.divide(total, counts)), "float32")


def _combined(real: Real, parts: list[relax.Expr], combine: Combine) -> relax.Expr:
    """Combines the parts. If there are several parts, the result is a call that is not bound yet."""
    if len(parts) == 1:
        return parts[0]
    return combine(reduce(lambda one, other: real(combine(one, other)), parts[:-1]), parts[-1])
