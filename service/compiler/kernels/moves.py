"""Moves: operators that only copy elements of some tensors to another tensor, in any order.

A sequence of reshapes, permutations of axes, slices and concatenations is one move. The effect of a move is found by
applying the move to the indices of the elements (`select.moves`). The memory offset of each element is an array too, so
that images in blocks and contiguous tensors are handled alike.

`patterns` finds out how a kernel can copy the elements, one vector of the destination at a time. There are two ways:

- If the elements of the vector are in a few source vectors (its *windows*), the kernel loads these and shuffles their
  lanes. Vectors that need the same shuffle of the same sources belong to one *pattern*.
- If the elements are far apart in the source, the kernel loads a few source vectors that contain the elements of
  several destination vectors, and transposes them. Such a rectangle of elements is a *square*.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Image
from service.core.digest import digest_of
from service.core.models.arrays import Array

MOST_ELEMENTS = 1 << 21  # analyzing larger tensors would take too long
NOTHING = -1  # the index of filler, which has no source element

_MOST_WINDOWS = 8  # a vector that needs more windows than this, or than half its lanes, becomes part of a square
_MOST_PATTERNS = 96  # each pattern adds code to the kernel
PART_BITS = (
    40  # an address is the source's number, shifted left by this, plus the element's offset in the source's memory
)

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Memory:
    """A tensor in memory.

    Attributes:
        dtype: the type of the tensor.
        size: the number of elements of the memory.
        offsets: the memory offset of each element of the tensor, in the tensor's order.
        image: the layout, if the tensor is an image. The memory then contains bytes as kernels store them.
        shape: the shape of the tensor; `[N, H, W, C]` for an image.
    """

    dtype: str
    size: int
    offsets: Integers
    shape: tuple[int, ...]
    image: Image | None = None

    @cached_property
    def content(self) -> Hashable:
        """A value that is equal for equal memories."""
        return self.dtype, self.size, digest_of(self.offsets.tobytes()), self.shape, self.image

    @staticmethod
    def contiguous(shape: Sequence[int], dtype: str) -> Memory:
        size = math.prod(shape)
        return Memory(dtype, size, np.arange(size, dtype=np.int64), tuple(shape))

    @staticmethod
    def of_image(image: Image, dtype: str) -> Memory:
        """Returns the memory of an image in blocks."""
        starts = _blocks_of(image)
        lanes = (starts[..., None] + np.arange(image.block)).transpose(0, 2, 3, 1, 4)
        offsets = lanes.reshape(*image.shape[:3], -1)[..., : image.channels]
        return Memory(dtype, image.size_bytes, offsets.reshape(-1), image.shape, image)


@dataclass(frozen=True, eq=False)
class Progression:
    """A series of vectors that are equally far apart in the destination, and whose windows are equally far apart too.

    Attributes:
        count: the number of vectors.
        starts: the offset of the first vector in the destination and in each window.
    """

    count: int
    starts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Square:
    """Squares of equal shape, whose elements are transposed.

    In each square, the kernel loads `columns` vectors of a source and stores `rows` vectors of the destination. Each
    stored vector contains one element of each loaded vector.

    Attributes:
        part: the index of the source.
        to, step: the distance from one vector of a square to the next, in the destination and in the source.
        steps, progressions: the positions of the squares in the destination and in the source, as in `Pattern`.
    """

    part: int
    rows: int
    columns: int
    to: int
    step: int
    steps: tuple[int, ...]
    progressions: tuple[Progression, ...]

    @property
    def vectors(self) -> int:
        return self.rows * sum(each.count for each in self.progressions)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Vectors of the destination that are gathered from the same sources by the same shuffle.

    Attributes:
        parts: for each window, the index of the source that contains it.
        order: for each lane, its index in the concatenated windows.
        steps: the stride from one vector of a progression to the next, in the destination and in each window.
        progressions: the positions of the vectors.
    """

    parts: tuple[int, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]
    progressions: tuple[Progression, ...]

    @property
    def vectors(self) -> int:
        return sum(each.count for each in self.progressions)


def patterns(
    sources: Sequence[Memory], destination: Memory, elements: Integers, lanes: int
) -> tuple[list[Pattern], list[Square]]:
    """Divides a move into patterns and squares, which the kernel copies vector by vector.

    Args:
        elements: for each element of the destination, its index among the elements of all sources, concatenated.
        lanes: the number of elements in a vector, and in a block of an image.

    Raises:
        Declined: the elements are scattered too much, or there are too many patterns.
    """
    addresses = addresses_of(sources, elements)
    starts, wanted = _vectors_of(destination, addresses, lanes)
    windows, order, apart = _windows(wanted, np.array([source.size for source in sources]), lanes)
    squares = _squares(starts[apart], wanted[apart]) if apart.any() else []
    starts, windows, order = starts[~apart], windows[~apart], order[~apart]
    parts = np.where(windows < 0, NOTHING, windows >> PART_BITS)
    keys = np.ascontiguousarray(np.concatenate([order, parts], axis=1).astype(np.int16))
    _, first, kind = np.unique(
        keys.view(np.dtype((np.void, keys.itemsize * keys.shape[1]))).reshape(-1),
        return_index=True,
        return_inverse=True,
    )
    if len(first) > _MOST_PATTERNS:
        raise Declined(f"its elements are copied in {len(first)} different patterns")
    found = []
    for number, index in enumerate(first):
        used = int((parts[index] >= 0).sum())
        own = np.flatnonzero(kind == number)
        positions = np.concatenate([starts[own, None], windows[own, :used] & ((1 << PART_BITS) - 1)], axis=1)
        steps, progressions = _progressions(positions)
        pattern = tuple(int(part) for part in parts[index, :used]), tuple(int(lane) for lane in order[index])
        found.append(Pattern(*pattern, steps, progressions))
    return found, squares


def addresses_of(sources: Sequence[Memory], elements: Integers) -> Integers:
    """Returns the address (see `PART_BITS`) of each of `elements`, which has the same meaning as for `patterns`.

    Raises:
        Declined: there are too many elements to analyze.
    """
    if elements.size > MOST_ELEMENTS:
        raise Declined(f"it copies {elements.size} elements, more than {MOST_ELEMENTS}")
    offsets = np.concatenate(
        [source.offsets + (number << PART_BITS) for number, source in enumerate(sources)] + [np.array([NOTHING])]
    )
    return np.asarray(offsets[elements])  # the index NOTHING selects the last offset


def _blocks_of(image: Image) -> Integers:
    """Returns the offset of each block of each pixel, `[N, blocks, H, W]`."""
    extents = image.batch, image.blocks, image.height, image.width
    return np.asarray(image.at(*np.indices(extents, np.int64)), np.int64)


def _vectors_of(destination: Memory, addresses: Integers, lanes: int) -> tuple[Integers, Integers]:
    """Returns the offsets of the destination's vectors, `[vectors]`, and the address of each lane's element in the
    sources, `[vectors, lanes]`.
    """
    if destination.image is not None:
        return _blocks_of(destination.image).reshape(-1), blocks_of_lanes(destination.image, addresses)
    starts = _starts(destination.shape, addresses, lanes)
    return starts, addresses[starts[:, None] + np.arange(lanes)]


def blocks_of_lanes(image: Image, values: Integers) -> Integers:
    """Arranges one value for each element of an image in the image's memory order, `[blocks of all pixels, lanes]`.

    Filler gets `NOTHING`.
    """
    filled = np.full((*image.shape[:3], image.blocks * image.block), NOTHING, np.int64)
    filled[..., : image.channels] = values.reshape(image.shape)
    blocked = filled.reshape(*image.shape[:3], image.blocks, image.block).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(blocked).reshape(-1, image.block)


def _starts(shape: Sequence[int], addresses: Integers, lanes: int) -> Integers:
    """Returns the offsets of vectors that cover a contiguous destination.

    A vector does not cross the end of a run of consecutive source elements if all runs are long. If some runs are
    short, a vector does not cross the end of a row.
    """
    size = len(addresses)
    breaks = np.flatnonzero(np.diff(addresses) != 1) + 1
    bounds = np.concatenate([[0], breaks, [size]])
    if size >= 4 * lanes * len(bounds) and np.diff(bounds).min() >= lanes:
        runs = pairwise(bounds)
        return np.concatenate([np.minimum(np.arange(begin, end, lanes), end - lanes) for begin, end in runs])
    row = next((row for row in _rows(shape) if row >= lanes), 0)
    if not row:
        raise Declined(f"it has {size} elements, less than a vector")
    return np.asarray(np.arange(0, size, row)[:, None] + np.minimum(np.arange(0, row, lanes), row - lanes)).reshape(-1)


def _rows(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis:]) for axis in reversed(range(len(shape)))]


def _windows(wanted: Integers, sizes: Integers, lanes: int) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Finds the source vectors (windows) from which each vector of `wanted` is gathered.

    Returns:
        The addresses of the windows, `[vectors, windows]`, with `NOTHING` for unused ones; the index of each lane in
        the concatenated windows; and for each vector, true if it needs too many windows.
    """
    if (sizes < lanes).any():
        raise Declined("a source has fewer elements than a vector")
    left, order, found = wanted >= 0, np.zeros(wanted.shape, np.int64), list[Integers]()
    while (left.any() and len(found) < min(_MOST_WINDOWS, lanes // 2)) or not found:
        used = left.any(axis=1) if found else np.ones(len(wanted), bool)
        first = np.where(left, wanted, np.iinfo(np.int64).max).min(axis=1)
        first = np.where(left.any(axis=1), first, 0)
        part = first >> PART_BITS
        first = np.minimum(first, (part << PART_BITS) + sizes[part] - lanes)
        inside = left & (wanted >= first[:, None]) & (wanted < first[:, None] + lanes)
        order = np.where(inside, len(found) * lanes + wanted - first[:, None], order)
        left &= ~inside
        found.append(np.where(used, first, NOTHING))
    return np.stack(found, axis=1), np.asarray(order), np.asarray(left.any(axis=1))


def _squares(starts: Integers, wanted: Integers) -> list[Square]:
    """Joins destination vectors to squares. The elements of each vector must be equally far apart in the source.

    Raises:
        Declined: the distances of a vector's elements differ.
    """
    lanes = wanted.shape[1]
    columns = (wanted >= 0).sum(axis=1)  # the other lanes are filler
    step = np.where(columns > 1, wanted[:, 1] - wanted[:, 0], 0)
    expected = wanted[:, :1] + np.arange(lanes) * step[:, None]
    if ((wanted != expected) & (np.arange(lanes) < columns[:, None])).any():
        raise Declined("adjacent elements come from too many places")
    order = np.argsort(wanted[:, 0])
    first, to, step, columns = wanted[order, 0], starts[order], step[order], columns[order]
    alike = (np.diff(first) == 1) & (np.diff(step) == 0) & (np.diff(columns) == 0)
    alike[1:] &= (np.diff(to, n=2) == 0) | ~alike[:-1]
    squares: dict[tuple[int, int, int, int, int], list[tuple[int, int]]] = {}
    begin = 0
    for end in [*(np.flatnonzero(~alike) + 1).tolist(), len(first)]:
        size = end - begin
        rows = min(size, lanes)
        for position in range(begin, end, lanes):
            position = min(position, end - rows)
            apart = int(to[position + 1] - to[position]) if rows > 1 else 0
            key = int(first[position] >> PART_BITS), rows, int(columns[position]), apart, int(step[position])
            squares.setdefault(key, []).append((int(to[position]), int(first[position] & ((1 << PART_BITS) - 1))))
        begin = end
    if len(squares) > _MOST_PATTERNS:
        raise Declined(f"its elements are transposed in {len(squares)} different patterns")
    return [Square(*key, *_progressions(np.array(positions, np.int64))) for key, positions in squares.items()]


def _progressions(positions: Integers) -> tuple[tuple[int, ...], tuple[Progression, ...]]:
    """Sorts the rows of `positions`, and divides them into progressions.

    Returns the most frequent difference between consecutive rows, which is the step of every progression, and the
    progressions.
    """
    best: tuple[tuple[int, ...], tuple[Progression, ...]] | None = None
    for column in range(min(2, positions.shape[1])):  # sorts by the destination's offsets, then by the first source's
        rows = positions[np.argsort(positions[:, column], kind="stable")]
        steps = np.diff(rows, axis=0)
        kinds, counts = np.unique(steps, axis=0, return_counts=True)
        step = kinds[counts.argmax()] if len(kinds) else np.zeros(positions.shape[1], np.int64)
        breaks = np.flatnonzero((steps != step).any(axis=1)) + 1
        if best is None or len(breaks) + 1 < len(best[1]):
            bounds = [0, *breaks.tolist(), len(rows)]
            best = (
                tuple(int(each) for each in step),
                tuple(Progression(end - begin, tuple(rows[begin].tolist())) for begin, end in pairwise(bounds)),
            )
    assert best is not None
    return best


@dataclass(frozen=True, eq=False)
class Move:
    """The specification of a move kernel.

    Attributes:
        sources: the tensors that elements are copied from.
        tables: for each source, a lookup table `[256] uint8` to apply to its stored bytes; None to copy them unchanged.
        destination: the tensor that is written.
        elements: for each element of the destination, its index among all sources' elements, as for `patterns`.
        fill: the value of the halo of an image, as stored.
    """

    sources: tuple[Memory, ...]
    tables: tuple[Array | None, ...]
    destination: Memory
    elements: Integers
    fill: int = 0

    @cached_property
    def content(self) -> Hashable:
        """A value that is equal for equal moves."""
        tables = tuple(None if table is None else table.tobytes() for table in self.tables)
        ends = tuple(each.content for each in (*self.sources, self.destination))
        return ends, tables, digest_of(self.elements.tobytes()), self.fill
