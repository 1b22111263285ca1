"""Iterates over the pixels of several tensors at once, in the longest runs that are contiguous in all of them.

Kernels that compute each output byte from the bytes at the same index of their sources (copies, lookups, additions) are
one loop over *runs*: pixels that are consecutive in every tensor. If a tensor has a halo on the left or right, a run is
a row. If it has a halo only above or below, a run is a plane. Without halos, a run is the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, load

# Threads divide a run into parts of this many pixels.
_CHUNK = 512

Place = tuple[Buffer, Expr]  # a buffer, and an offset in it
Vector = Callable[..., Expr]  # takes a vector of bytes of each source and the number of bytes; returns as many bytes


@dataclass(frozen=True)
class View:
    """The positions of a tensor's pixels, in bytes.

    Attributes:
        origin: the offset of the first pixel in the first block of the first image.
        strides: the distance from one image, channel block, row and column to the next.
    """

    origin: int
    strides: tuple[int, int, int, int]

    @staticmethod
    def of(image: Image) -> View:
        """Returns the positions of the image's pixels, without the halo."""
        return View(image.origin, (image.image, image.plane, image.row, image.pixel))

    def from_block(self, block: int) -> View:
        """Returns the view without the blocks before number `block`."""
        return View(self.origin + block * self.strides[1], self.strides)

    def broadcast(self, own: Sequence[int], extents: Sequence[int]) -> View:
        """Returns a view that repeats its pixels along each dimension that is 1 in `own` but not in `extents`."""
        pairs = zip(own, extents, self.strides, strict=True)
        strides = [0 if mine == 1 != extent else stride for mine, extent, stride in pairs]
        return View(self.origin, (strides[0], strides[1], strides[2], strides[3]))


@dataclass(frozen=True)
class Run:
    """Consecutive pixels, which are equally far apart in every view.

    Attributes:
        pixels: the number of pixels.
        strides: the bytes from one pixel to the next, for each view.
        starts: the offset of the first pixel, for each view.
        image, block: the numbers of the image and of the channel block that contain the first pixel.
        first: true if the run is the first one of its plane.
    """

    pixels: int
    strides: tuple[int, ...]
    starts: tuple[Expr, ...]
    image: Expr
    block: Expr
    first: Expr


class Walk:
    """The runs of some views.

    Two dimensions are joined to one run if all of its pixels are then equally far apart in every view.
    """

    def __init__(self, extents: Sequence[int], views: Sequence[View], unit: int, *, parallel: bool) -> None:
        """
        Args:
            extents: images, blocks of channels, rows, columns.
            unit: the bytes of a pixel. A dimension other than columns may form a run if its stride equals this.
            parallel: true if runs are divided among threads.
        """
        self._views, self._parallel = views, parallel
        outer, pixels, strides = 3, extents[3], self._strides(3)
        for axis in (2, 1, 0):
            steps = self._strides(axis)
            if extents[axis] > 1:
                if pixels == 1 and all(step in (0, unit) for step in steps):
                    strides = steps
                elif pixels == 1 or steps != tuple(pixels * stride for stride in strides):
                    break
            outer, pixels = axis, pixels * extents[axis]
        self._pixels, self.strides = pixels, strides
        self._counts = (*extents[:outer], -(-pixels // _CHUNK) if parallel else 1)

    def _strides(self, axis: int) -> tuple[int, ...]:
        return tuple(view.strides[axis] for view in self._views)

    @contextmanager
    def runs(self, program: Program) -> Iterator[Run]:
        """Loops over all runs, in any order. If threads divide a run, its parts may overlap."""
        total, chunks = math.prod(self._counts), self._counts[-1]
        pixels = -(-self._pixels // chunks)
        with program.loop(total, "item", parallel=self._parallel and total > 1) as item:
            *outer, chunk = self._places(program, item)
            begin = program.bind(at_most(chunk * pixels, self._pixels - pixels))
            starts = tuple(
                program.bind(
                    view.origin
                    + sum(position * step for position, step in zip(outer, view.strides, strict=False))
                    + begin * stride
                )
                for view, stride in zip(self._views, self.strides, strict=True)
            )
            image, block, row = (*outer, 0, 0, 0)[:3]
            yield Run(pixels, self.strides, starts, image, block, _zero(row, chunk))

    def _places(self, program: Program, item: Expr) -> list[Expr]:
        """Returns the indices of iteration number `item`: one for each dimension outside of runs, then the part of the
        run."""
        positions = []
        for count in reversed(self._counts):
            positions.append(program.bind(item % count) if count > 1 else 0)
            item = item // count if count > 1 else item
        return positions[::-1]


def _zero(*positions: Expr) -> Expr:
    """Returns the condition that all of `positions` are 0."""
    conditions = [position == tirx.const(0, "int32") for position in positions if not isinstance(position, int)]
    return tirx.all(*conditions) if conditions else True


def map_bytes(
    program: Program,
    vector_bytes: int,
    sources: Sequence[Place],
    destination: Place,
    size: int,
    function: Vector,
) -> None:
    """Applies `function` to exactly `size` bytes of each source, and stores the results in the destination.

    The last two vectors overlap. If there are fewer bytes than a vector, narrower vectors are used.
    """
    width = vector_bytes
    while width > size:
        width //= 2
    with program.loop(-(-size // width), "step") as step:
        at = program.bind(at_most(step * width, size - width))
        vectors = [load(buffer, offset + at, width) for buffer, offset in sources]
        program.store(destination[0], destination[1] + at, function(*vectors, width), width)
