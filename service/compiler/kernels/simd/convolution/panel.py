"""A panel: a copy of the input pixels of some output pixels, in a layout that tile instructions can load.

A tile instruction loads a tile of 16 rows, 64 bytes each, that are equally far apart in memory. Each row of the tile is
one pixel. In an image, only 16 channels of a pixel are contiguous, and there are halos between rows of pixels. So an
iteration of the parallel loop copies the pixels that it needs to a panel in its own memory.

In the panel, several channel blocks of a pixel (four, if there are enough) are contiguous. These blocks are a *group*.
For every kernel tap, the pixels that consecutive outputs read are `pixel_bytes` apart. A row of the panel is `pitch`
pixels long, which can be more than the outputs of a row. Tiles then also contain pixels between two output rows, whose
results are not used.

A window with stride 2 reads every other pixel. Pixels are therefore sorted into *planes*: for a given kernel tap, all
pixels are in one plane, and the next output reads the next pixel of the plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load
from service.compiler.kernels.walk import map_bytes
from service.core.models.arrays import Array

_QUAD = 4  # the number of parts of 16 channels in 64 bytes
_QUAD_BYTES, _PART_BYTES = 64, 16
_DWORDS = "int32x16"

Pair = tuple[int, int]  # a row and a column


@dataclass(frozen=True)
class Plane:
    """Pixels that are `strides` apart in the image.

    Attributes:
        first: the position of the plane's first pixel, relative to the first pixel of the panel's first window.
        rows, columns: the number of pixels to copy.
        offset: the byte offset of the plane in a group.
    """

    first: Pair
    rows: int
    columns: int
    offset: int


@dataclass(frozen=True)
class Run:
    """Kernel taps whose bytes are contiguous in a panel.

    Attributes:
        offset: the byte offset of the first tap's pixel, for the panel's first output pixel.
        group: the number of the group of channels.
        taps: the kernel row and column of each tap. For a packed source, a whole kernel row is treated as one tap.
    """

    offset: int
    group: int
    taps: tuple[Pair, ...]


class Panel:
    """The panel of `rows` x `columns` output pixels of a layer.

    Attributes:
        blocks: the number of blocks in a group.
        pixel_bytes: the distance in bytes from the input of one output pixel to the input of the next.
        pitch: the distance from one row of the panel to the next, in output pixels.
        planes: the planes of a group, in the order of their memory.
        size_bytes: the size of all groups, plus the bytes after the groups that loads of the last tile also read.
        runs: the runs in the order in which they are summed.
    """

    def __init__(self, layer: Layer, rows: int, columns: int, depth: int, *, separate: bool) -> None:
        """
        Args:
            depth: the number of bytes of a pixel in a tile.
            separate: true if each kernel column has its own planes. More bytes are then copied, but tiles contain no
                unused pixels between rows.
        """
        self.layer, self.rows, self.columns, self.depth = layer, rows, columns, depth
        if layer.source.packed:
            channels, (_, kernel_w) = layer.source.channels, layer.window.kernel
            self.blocks, self.tap_bytes, self.pixel_bytes = 1, kernel_w * channels, layer.window.strides[1] * channels
            positions = self._packed()
        else:
            self.blocks = _blocks(layer, depth)
            self.tap_bytes = self.pixel_bytes = self.blocks * layer.source.block
            positions = self._blocked(separate=separate)
        self.pitch = columns + max(right for _, (_, right) in positions.values())
        self.planes: list[Plane] = []
        self.group_bytes = 0
        for first in sorted({first for first, _ in positions.values()}):
            reached = [at for own, at in positions.values() if own == first]
            high, wide = rows + max(down for down, _ in reached), columns + max(right for _, right in reached)
            self.planes.append(Plane(first, high, wide, self.group_bytes))
            self.group_bytes += high * self.pitch * self.pixel_bytes
        self.groups = -(-layer.source.blocks // self.blocks)
        self.size_bytes = self.groups * self.group_bytes + depth
        self.runs = tuple(run for group in range(self.groups) for run in self._runs(group, positions))

    def _blocked(self, *, separate: bool) -> dict[Pair, tuple[Pair, Pair]]:
        """Maps each kernel tap to the first pixel of its plane, and to the tap's position (down, right) in the
        plane.
        """
        window, positions = self.layer.window, {}
        (stride_h, stride_w), (dilation_h, dilation_w) = window.strides, window.dilation
        for row in range(window.kernel[0]):
            for column in range(window.kernel[1]):
                (down, first_row), at = divmod(row * dilation_h, stride_h), column * dilation_w
                right, first_column = (0, at) if separate else divmod(at, stride_w)
                positions[row, column] = (first_row, first_column), (down, right)
        return positions

    def _packed(self) -> dict[Pair, tuple[Pair, Pair]]:
        """Does the same as `_blocked` for a packed source, in which the bytes under a kernel row are contiguous."""
        (kernel_h, kernel_w), (stride_h, stride_w) = self.layer.window.kernel, self.layer.window.strides
        beyond = -(-max(0, kernel_w - stride_w) // stride_w)
        positions = {}
        for row in range(kernel_h):
            down, first_row = divmod(row * self.layer.window.dilation[0], stride_h)
            positions[row, 0] = (first_row, 0), (down, beyond)
        return positions

    def _runs(self, group: int, positions: Mapping[Pair, tuple[Pair, Pair]]) -> list[Run]:
        planes = {plane.first: plane.offset for plane in self.planes}
        found: list[tuple[int, list[Pair]]] = []
        for tap, (first, (down, right)) in sorted(positions.items(), key=lambda place: (place[0][0], place[1])):
            across = 0 if self.layer.source.packed else right
            offset = group * self.group_bytes + planes[first] + (down * self.pitch + across) * self.pixel_bytes
            follows = found and found[-1][0] + len(found[-1][1]) * self.tap_bytes == offset
            if follows and found[-1][1][-1][0] == tap[0]:
                found[-1][1].append(tap)
            else:
                found.append((offset, [tap]))
        return [Run(offset, group, tuple(taps)) for offset, taps in found]

    @property
    def length(self) -> int:
        """The number of pixels from the first output to the last, including the unused pixels between rows."""
        return (self.rows - 1) * self.pitch + self.columns

    @property
    def copied_bytes(self) -> int:
        """The number of bytes that are copied into a panel."""
        return sum(plane.rows * plane.columns for plane in self.planes) * self.pixel_bytes * self.groups

    @property
    def offsets(self) -> Array:
        """The byte offset of each reduction step's activations in the panel, for the first output pixel:
        `[steps] int32`.
        """
        starts = [run.offset + at for run in self.runs for at in range(0, len(run.taps) * self.tap_bytes, self.depth)]
        return np.array(starts, np.int32)

    def arrange(self, weights: Array) -> Array:
        """Converts weights `[O, KH, KW, C]` to `[O, steps, depth]`, extended with zeros."""
        filters, parts, packed = len(weights), [], self.layer.source.packed
        for run in self.runs:
            size = len(run.taps) * self.tap_bytes
            filled = np.zeros((filters, -(-size // self.depth) * self.depth), weights.dtype)
            for position, (row, column) in enumerate(run.taps):
                channels = slice(run.group * self.tap_bytes, (run.group + 1) * self.tap_bytes)
                tap = weights[:, row].reshape(filters, -1) if packed else weights[:, row, column, channels]
                filled[:, position * self.tap_bytes : position * self.tap_bytes + tap.shape[1]] = tap
            parts.append(filled.reshape(filters, -1, self.depth))
        return np.concatenate(parts, axis=1)

    def copy(self, program: Program, source: Buffer, first_byte: Expr, memory: Buffer, start: int) -> None:
        """Copies the input pixels into the panel.

        Args:
            first_byte: the offset of the first byte that the panel's first output pixel reads.
            memory, start: the buffer that contains the panel, and the panel's offset in it.
        """
        image, (stride_h, stride_w) = self.layer.source, self.layer.window.strides
        for plane in self.planes:
            row, column = plane.first
            origin = program.bind(first_byte + row * image.row + column * image.pixel)
            with program.loop(plane.rows, "line") as line:
                at = program.bind(origin + line * (stride_h * image.row))
                to = program.bind(line * (self.pitch * self.pixel_bytes) + (start + plane.offset))
                if image.packed:
                    size = ((self.columns - 1) * stride_w + self.layer.window.kernel[1]) * image.channels
                    map_bytes(program, _QUAD_BYTES, [(source, at)], (memory, to), size, lambda vector, _: vector)
                else:
                    _Interleave(program, source, memory, self).line(at, to, plane.columns)


def _blocks(layer: Layer, depth: int) -> int:
    """Returns the number of blocks in a group.

    A group has as many blocks as fit the depth of a tile, or all blocks if the reduction then needs fewer steps.
    """
    source, neighbours = layer.source, layer.window.strides[1] == layer.window.dilation[1] == 1
    few, columns = min(depth // source.block, source.blocks), layer.window.kernel[1]

    def tiles(blocks: int) -> int:
        size, taps = blocks * source.block, columns if neighbours else 1
        return -(-source.blocks // blocks) * -(-size * taps // depth) * (columns // taps)

    return min(few, source.blocks, key=tiles)


class _Interleave:
    """Copies a row of pixels from an image in blocks to a panel, in which the blocks of a group are contiguous."""

    def __init__(self, program: Program, source: Buffer, memory: Buffer, panel: Panel) -> None:
        self.program, self.source, self.memory = program, source, memory
        image = panel.layer.source
        self.plane, self.blocks, self.pixel_bytes = image.plane, image.blocks, panel.pixel_bytes
        self.of_group, self.group_bytes = panel.blocks, panel.group_bytes
        self.step = panel.layer.window.strides[1] * image.pixel
        self.neighbours = panel.layer.window.strides[1] == 1

    def line(self, at: Expr, to: Expr, columns: int) -> None:
        wide = _QUAD if self.neighbours and columns >= _QUAD else 1
        with self.program.loop(-(-columns // wide), "column") as step:
            column = self.program.bind(at_most(step * wide, columns - wide))
            position = self.program.bind(at + column * self.step)
            goal = self.program.bind(to + column * self.pixel_bytes)
            whole, rest = divmod(self.blocks, self.of_group)
            with self.program.loop(whole, "part") as group:
                begin = self.program.bind(position + group * (self.of_group * self.plane))
                self._group(begin, self.program.bind(goal + group * self.group_bytes), wide, self.of_group)
            if rest:
                begin = self.program.bind(position + whole * self.of_group * self.plane)
                self._group(begin, goal + whole * self.group_bytes, wide, rest)

    def _group(self, at: Expr, to: Expr, pixels: int, blocks: int) -> None:
        """Copies some blocks of some pixels, four blocks at a time. The last four may overlap the previous ones."""
        for block in range(0, blocks, _QUAD):
            first = min(block, max(0, blocks - _QUAD))
            begin, goal = at + first * self.plane, to + first * _PART_BYTES
            if pixels == _QUAD <= blocks:
                self._transposed(begin, goal)
            else:
                self._piecewise(begin, goal, pixels, min(_QUAD, blocks))

    def _piecewise(self, at: Expr, to: Expr, pixels: int, blocks: int) -> None:
        for pixel in range(pixels):
            for block in range(blocks):
                part = load(self.source, at + (pixel * self.step + block * self.plane), _PART_BYTES)
                self.program.store(
                    self.memory, to + (pixel * self.pixel_bytes + block * _PART_BYTES), part, _PART_BYTES
                )

    def _transposed(self, at: Expr, to: Expr) -> None:
        """Loads four pixels of each of four blocks, and stores the four blocks of each pixel contiguously.

        This is a transposition of 4 x 4 parts of 16 bytes.
        """
        vectors = [
            self._bind_vector(bits(_DWORDS, load(self.source, at + block * self.plane, _QUAD_BYTES)))
            for block in range(4)
        ]
        halves = [
            [self._bind_vector(_parts(vectors[block], vectors[block + 1], first)) for block in (0, 2)]
            for first in ((0, 1, 4, 5), (2, 3, 6, 7))
        ]
        for pixel in range(_QUAD):
            (first, second), which = halves[pixel // 2], (0, 2, 4, 6) if pixel % 2 == 0 else (1, 3, 5, 7)
            square = bits(f"uint8x{_QUAD_BYTES}", _parts(first, second, which))
            self.program.store(self.memory, to + pixel * self.pixel_bytes, square, _QUAD_BYTES)

    def _bind_vector(self, value: Expr) -> Expr:
        return self.program.bind(value, _DWORDS)


def _parts(first: Expr, second: Expr, parts: tuple[int, ...]) -> Expr:
    """Returns a vector with four of the eight 16-byte parts of two vectors."""
    return tirx.Shuffle([first, second], [tirx.const(4 * part + word, "int32") for part in parts for word in range(4)])
