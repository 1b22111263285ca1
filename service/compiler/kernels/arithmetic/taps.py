"""Divides the input pixels under one row of kernel taps into vectors of four, for the neighboring outputs of a tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.layer import Window
from service.compiler.kernels.vector.isa import PIXELS
from service.core.models.arrays import Array


@dataclass(frozen=True)
class Vector:
    """Four neighboring input pixels of one row.

    Attributes:
        position: the first pixel, relative to the beginning of the window of the tile's first output.
        uses: the outputs that depend on the vector, as (column, shift). The *shift* is the index, in the vector, of the
            pixel under the output's first kernel tap. It is negative if that pixel is before the vector.
    """

    position: int
    uses: tuple[tuple[int, int], ...]


class Taps:
    """The vectors that contain the input pixels of a row of `columns` outputs.

    Attributes:
        run: the number of consecutive vectors that together contain the whole windows of some outputs.
        vectors: the vectors from left to right.
        shifts: the different shifts. The weights by which a vector is multiplied depend only on the shift.
    """

    def __init__(self, window: Window, columns: int) -> None:
        self._offsets = [tap * window.dilation[1] for tap in range(window.kernel[1])]
        stride, span = window.strides[1], self._offsets[-1] + 1
        # Longer runs contain the windows of more outputs, but few pixels of their first and last vectors are used.
        runs = range(-(-span // PIXELS), -(-(span + (PIXELS - 1) * stride) // PIXELS) + 1)
        # The cost in instructions: two to transpose each vector, and one for each product.
        covers = {groups: self._cover(groups, span, stride, columns) for groups in runs}
        self.run, self.vectors = min(
            covers.items(), key=lambda cover: 2 * len(cover[1]) + sum(len(vector.uses) for vector in cover[1])
        )
        self.shifts = sorted({shift for vector in self.vectors for _, shift in vector.uses})

    @property
    def products(self) -> int:
        """The number of multiplications of vectors."""
        return sum(len(vector.uses) for vector in self.vectors)

    def arrange(self, weights: Array) -> Array:
        """Converts weights `[…, KW]` to `[…, shifts, 4]`: for each shift, the weight of each pixel of a vector, or
        zero."""
        arranged = np.zeros((*weights.shape[:-1], len(self.shifts), PIXELS), weights.dtype)
        for position, shift in enumerate(self.shifts):
            for pixel, tap in self._over(shift):
                arranged[..., position, pixel] = weights[..., tap]
        return arranged

    def _cover(self, groups: int, span: int, stride: int, columns: int) -> list[Vector]:
        """Returns the vectors if each run consists of `groups` vectors.

        A run is used for as many outputs as have their whole windows in it.
        """
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
        """Returns the indices of the pixels of a vector that are under a kernel tap."""
        return [pixel for pixel, _ in self._over(shift)]

    def _over(self, shift: int) -> list[tuple[int, int]]:
        """Returns (pixel, tap) for each kernel tap whose pixel is in the vector."""
        positions = [(shift + offset, tap) for tap, offset in enumerate(self._offsets)]
        return [(pixel, tap) for pixel, tap in positions if 0 <= pixel < PIXELS]
