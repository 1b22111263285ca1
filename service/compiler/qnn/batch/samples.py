"""Where the samples of a batch lie in a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relax

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Samples:
    """A tensor of a batch.

    For one sample it is of `shape`. Its `axis` is `outer` parts, each of which is there for every sample, one behind
    the other: of `[4, 6]`, axis 1 and 2 parts, a batch of 5 makes `[4, 30]`, which is `[4, 2, 5, 3]`.

    Attributes:
        value: of all samples.
    """

    value: relax.Expr
    shape: Shape
    axis: int = 0
    outer: int = 1

    @property
    def extent(self) -> int:
        """Of the axis, for one sample."""
        return self.shape[self.axis]

    @property
    def before(self) -> int:
        """The number of parts in front of the samples, in memory's order."""
        return math.prod(self.shape[: self.axis]) * self.outer

    def grown(self, batch: int) -> Shape:
        """The shape of `value`."""
        return grown(self.shape, self.axis, batch)


def grown(shape: Sequence[int], axis: int, batch: int) -> Shape:
    """`shape` with `axis` as often as there are samples."""
    return *shape[:axis], shape[axis] * batch, *shape[axis + 1 :]


def apart(shape: Sequence[int], axis: int, batch: int) -> Shape:
    """`shape` with an axis of samples of its own, in front of `axis`."""
    return *shape[:axis], batch, *shape[axis:]


def located(shape: Sequence[int], before: int) -> tuple[int, int] | None:
    """`Samples.axis` and `outer` for samples with `before` parts in front of them: an axis of length 1 if there is one
    at that place, else the one that begins there, or is divided by it. None if no axis is."""
    count = 1
    for axis, extent in enumerate(shape):
        outer, rest = divmod(before, count)
        if rest:
            return None
        if outer == 1 or outer < extent:
            return None if extent % outer else (axis, outer)
        count *= extent
    return (len(shape) - 1, shape[-1]) if shape and count == before else None
