"""The layout of a kernel row's taps in vectors of four pixels, for the neighbouring outputs of a tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.layer import Window
from service.compiler.kernels.vector.isa import PIXELS
from service.core.arrays import Array


@dataclass(frozen=True)
class Vector:
    """Four neighbouring pixels of one row.

    Attributes:
        position: of the first, in pixels from where the window of the tile's first output begins.
        uses: the outputs that it goes into: their column, and the pixel of the vector over which their first tap lies.
            That is their *shift*; it is negative if the tap lies before the vector, which then holds later ones.
    """

    position: int
    uses: tuple[tuple[int, int], ...]


class Taps:
    """The vectors that hold every tap of a row of `columns` outputs once, and the weights that they need.

    Attributes:
        run: how many vectors lie one behind the other, which hold all taps of a few outputs.
        vectors: from left to right.
        shifts: the shifts that occur: what lies over a vector depends on nothing else.
    """

    def __init__(self, window: Window, columns: int) -> None:
        self._offsets = [tap * window.dilation[1] for tap in range(window.kernel[1])]
        stride, span = window.strides[1], self._offsets[-1] + 1
        # Wider runs of pixels hold the windows of more outputs, but their outermost vectors hold few taps.
        runs = range(-(-span // PIXELS), -(-(span + (PIXELS - 1) * stride) // PIXELS) + 1)
        # A transposition takes two instructions, a product one.
        covers = {groups: self._cover(groups, span, stride, columns) for groups in runs}
        self.run, self.vectors = min(
            covers.items(), key=lambda cover: 2 * len(cover[1]) + sum(len(vector.uses) for vector in cover[1])
        )
        self.shifts = sorted({shift for vector in self.vectors for _, shift in vector.uses})

    @property
    def products(self) -> int:
        """The number of times that a vector is multiplied."""
        return sum(len(vector.uses) for vector in self.vectors)

    def arrange(self, weights: Array) -> Array:
        """`[…, KW]` -> `[…, shifts, 4]`: the taps over each pixel of a vector, zero where there is none."""
        arranged = np.zeros((*weights.shape[:-1], len(self.shifts), PIXELS), weights.dtype)
        for place, shift in enumerate(self.shifts):
            for pixel, tap in self._over(shift):
                arranged[..., place, pixel] = weights[..., tap]
        return arranged

    def _cover(self, groups: int, span: int, stride: int, columns: int) -> list[Vector]:
        """Runs of `groups` vectors, each for as many outputs as have their windows in it."""
        outputs = (groups * PIXELS - span) // stride + 1
        vectors = []
        for first in range(0, columns, outputs):
            for group in range(groups):
                shifts = [
                    (column, (column - first) * stride - group * PIXELS)
                    for column in range(first, min(first + outputs, columns))
                ]
                uses = tuple((column, shift) for column, shift in shifts if self._over(shift))
                if uses:
                    vectors.append(Vector(first * stride + group * PIXELS, uses))
        return vectors

    def places(self, shift: int) -> list[int]:
        """The pixels of a vector over which taps lie."""
        return [pixel for pixel, _ in self._over(shift)]

    def _over(self, shift: int) -> list[tuple[int, int]]:
        """(pixel, tap) for each tap that lies over a vector."""
        places = [(shift + offset, tap) for tap, offset in enumerate(self._offsets)]
        return [(pixel, tap) for pixel, tap in places if 0 <= pixel < PIXELS]
