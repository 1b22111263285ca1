"""Views of matrices in a contiguous tensor or in an image, after reshaping, permuting and slicing.

Each head of an attention layer is a range of an image's channels. With such views, heads are split, transposed and
joined without copying.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.compiler.kernels.layout import Contiguous, Image


@dataclass(frozen=True)
class Strided:
    """A strided view of a contiguous tensor, as in NumPy.

    Attributes:
        shape: the shape of the view.
        strides: for each axis, the number of elements from one index to the next.
        offset: the index of the first element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def of(shape: Sequence[int]) -> Strided:
        """Returns the view of a whole contiguous tensor."""
        return Strided(tuple(shape), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape))))

    def permuted(self, axes: Sequence[int]) -> Strided:
        return replace(
            self, shape=tuple(self.shape[axis] for axis in axes), strides=tuple(self.strides[axis] for axis in axes)
        )

    def sliced(self, axis: int, begin: int, end: int) -> Strided:
        shape = (*self.shape[:axis], end - begin, *self.shape[axis + 1 :])
        return replace(self, shape=shape, offset=self.offset + begin * self.strides[axis])

    def reshaped(self, shape: Sequence[int]) -> Strided | None:
        """Returns the reshaped view; None if that is not possible without copying elements."""
        if 0 in self.shape:
            return None
        runs: list[tuple[int, int]] = []  # joined contiguous axes, as (number of elements, stride of the last axis)
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 1:
                continue
            if runs and runs[-1][1] == extent * stride:
                runs[-1] = runs[-1][0] * extent, stride
            else:
                runs.append((extent, stride))
        strides: list[int] = []
        for extent in reversed(shape):
            if extent == 1:
                strides.append(0)
                continue
            if not runs or runs[-1][0] % extent:
                return None
            left, stride = runs.pop()
            strides.append(stride)
            if left > extent:
                runs.append((left // extent, stride * extent))
        return Strided(tuple(shape), tuple(reversed(strides)), self.offset)

    def broadcast(self, shape: Sequence[int]) -> Strided:
        """Returns the view repeated along new leading axes and along axes of size 1."""
        missing = len(shape) - len(self.shape)
        shape_here, strides = (1,) * missing + self.shape, (0,) * missing + self.strides
        pairs = zip(shape_here, shape, strides, strict=True)
        return replace(
            self, shape=tuple(shape), strides=tuple(0 if own < extent else stride for own, extent, stride in pairs)
        )

    @property
    def of_columns(self) -> bool:
        """True if the elements of a column are contiguous, which means that the matrices are stored transposed."""
        return not self.of_rows and (self.strides[-2] == 1 or self.shape[-2] == 1)

    @property
    def of_rows(self) -> bool:
        """True if the elements of a row are contiguous."""
        return self.strides[-1] == 1 or self.shape[-1] == 1

    @property
    def transposed(self) -> Strided:
        axes = range(len(self.shape))
        return self.permuted((*axes[:-2], axes[-1], axes[-2]))


@dataclass(frozen=True)
class Matrices:
    """Matrices in memory whose rows consist of runs of `lanes` elements. Offsets and strides count elements.

    Attributes:
        batch: the sizes of the axes before rows and columns; `steps` has their strides.
        row: the stride from one row to the next.
        block: the stride from one run of a row to the next.
        origin: the offset of the first element.
        size: the number of elements of the buffer.
        dtype: the type of the elements; for an image, bytes as kernels store them.
        image: the image that contains the matrices; None for a contiguous tensor.
    """

    batch: tuple[int, ...]
    steps: tuple[int, ...]
    rows: int
    columns: int
    row: int
    block: int
    origin: int
    size: int
    dtype: str
    image: Image | None = None

    @staticmethod
    def contiguous(view: Strided, size: int, dtype: str, lanes: int) -> Matrices:
        """Returns the matrices of `view`, in a contiguous tensor. `view.of_rows` must be true."""
        *batch, rows, columns = view.shape
        *steps, row, _ = view.strides
        return Matrices(tuple(batch), tuple(steps), rows, columns, row, lanes, view.offset, size, dtype)

    @staticmethod
    def within(image: Image, view: Strided) -> Matrices | None:
        """Returns the matrices of `view` in an image in blocks, or None if a row of the view does not consist of whole
        blocks.

        Args:
            view: a view of the contiguous tensor that has the same elements as the image. `view.of_rows` must be true.
        """
        if image.packed or isinstance(image, Contiguous):
            return None
        steps = _Steps.of(image, view.offset)
        if steps.first[-1] % image.block or (view.strides[-1] != 1 and view.shape[-1] > 1):
            return None
        found = [steps.along(extent, stride) for extent, stride in zip(view.shape[:-1], view.strides, strict=False)]
        steps.reach(-1, view.shape[-1] - 1)
        if not steps.inside or any(step is None for step in found):
            return None
        *batch, rows, columns = view.shape
        *outer, row = (step or 0 for step in found)
        return Matrices(
            *(tuple(batch), tuple(outer), rows, columns, row, image.plane),
            *(image.origin + steps.start, image.size_bytes, "uint8", image),
        )

    def start(self, positions: Sequence[Any]) -> Any:
        """Returns the offset of the matrix at the indices `positions` (integers or expressions) of the axes `batch`."""
        return sum((position * step for position, step in zip(positions, self.steps, strict=True) if step), self.origin)


class _Steps:
    """Converts strides in a tensor to strides in the memory of an image.

    Attributes:
        sizes: the number of images, pixels and channels. If the image has a halo, rows and columns instead of pixels.
        first, last: for each of these dimensions, the first and the last index that the view contains.
    """

    def __init__(self, sizes: tuple[int, ...], memory: tuple[int, ...], first: tuple[int, ...], block: int) -> None:
        self.sizes, self.memory, self.first, self.block = sizes, memory, first, block
        self.last = list(first)

    @staticmethod
    def of(image: Image, offset: int) -> _Steps:
        if image.contiguous_rows:
            sizes: tuple[int, ...] = image.batch, image.height * image.width, image.channels
            memory: tuple[int, ...] = image.image, image.pixel, image.plane
        else:
            sizes = image.shape
            memory = image.image, image.row, image.pixel, image.plane
        first, left = [], offset
        for size in reversed(sizes[1:]):
            first.append(left % size)
            left //= size
        return _Steps(sizes, memory, (left, *reversed(first)), image.block)

    @property
    def start(self) -> int:
        *outer, channel = self.first
        *steps, plane = self.memory
        return sum(position * step for position, step in zip(outer, steps, strict=True)) + channel // self.block * plane

    @property
    def inside(self) -> bool:
        return all(last < size for last, size in zip(self.last, self.sizes, strict=True))

    def reach(self, axis: int, further: int) -> None:
        self.last[axis] += further

    def along(self, extent: int, stride: int) -> int | None:
        """Returns the stride of an axis in the image's memory, and extends `last` to the axis' last index.

        Returns None if the stride is not constant.
        """
        if extent == 1 or stride == 0:
            return 0
        for axis in range(len(self.sizes) - 1):
            inner = math.prod(self.sizes[axis + 1 :])
            if stride % inner == 0:
                self.reach(axis, (extent - 1) * (stride // inner))
                return stride // inner * self.memory[axis]
        if stride % self.block:
            return None
        self.reach(-1, (extent - 1) * stride)
        return stride // self.block * self.memory[-1]
