"""Describes where the samples of a batch are in a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Samples:
    """A tensor of a batch.

    The shape for one sample is `shape`. `axis` consists of `outer` parts, and a batch has each part once for every
    sample. For example, `[4, 6]` with axis 1 and 2 parts becomes `[4, 30]` for a batch of 5, which is `[4, 2, 5, 3]`.

    Attributes:
        value: the tensor of all samples.
    """

    value: relax.Expr
    shape: Shape
    axis: int = 0
    outer: int = 1

    @property
    def extent(self) -> int:
        """The length of the sample axis, for one sample."""
        return self.shape[self.axis]

    @property
    def before(self) -> int:
        """The number of parts before the samples, in memory order."""
        return math.prod(self.shape[: self.axis]) * self.outer

    def batched_shape(self, batch: int) -> Shape:
        """Returns the shape of `value`."""
        return batched_shape(self.shape, self.axis, batch)


def batched_shape(shape: Sequence[int], axis: int, batch: int) -> Shape:
    """Returns `shape` with `axis` multiplied by the number of samples."""
    return *shape[:axis], shape[axis] * batch, *shape[axis + 1 :]


def apart(shape: Sequence[int], axis: int, batch: int) -> Shape:
    """Returns `shape` with a separate sample axis before `axis`."""
    return *shape[:axis], batch, *shape[axis:]


def located(shape: Sequence[int], before: int) -> tuple[int, int] | None:
    """Returns the `Samples.axis` and `Samples.outer` of samples with `before` parts before them in memory.

    The axis is the first of these that exists: an axis of length 1 that begins after `before` elements, another axis
    that begins there, an axis that is divided evenly there. Returns None if none exists.
    """
    count = 1
    for axis, extent in enumerate(shape):
        outer, rest = divmod(before, count)
        if rest:
            return None
        if outer == 1 or outer < extent:
            return None if extent % outer else (axis, outer)
        count *= extent
    return (len(shape) - 1, shape[-1]) if shape and count == before else None
