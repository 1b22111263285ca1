"""A panel: the part of an image under some output pixels, laid out so that a tile's rows are equally far apart.

Instructions on tiles want 64 bytes of each of 16 pixels, at one distance. Images have 16 channels of a pixel side by
side, and borders between their rows. So an item copies what its output pixels need into memory of its own, all channels
of a pixel side by side. There, output pixel `p` begins at `p * pixel_bytes` whatever its row: rows of the panel are
`pitch` pixels long, and the pixels between the end of an output row and the next belong to no output.

A strided window reads every other pixel. Pixels are therefore sorted into *planes*: those of a plane are read by
neighbouring outputs, so that a step of one pixel is a step of one output for every tap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.kernel import Array
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load
from service.compiler.kernels.walk import map_bytes

_QUAD = 4  # pixels of 16 channels in 64 bytes
_QUAD_BYTES, _PART_BYTES = 64, 16
_DWORDS = "int32x16"

Key = tuple[int, int]  # a plane: the first row and the first column of its pixels, from the window's first


@dataclass(frozen=True)
class Plane:
    """Pixels that lie `strides` apart in the image.

    Attributes:
        first: row and column of its first pixel, from the first one of the panel's first window.
        rows, columns: how many of its pixels are read.
        offset: where it begins in the panel, in bytes.
    """

    first: Key
    rows: int
    columns: int
    offset: int


@dataclass(frozen=True)
class Run:
    """Taps whose bytes lie side by side in a panel.

    Attributes:
        offset: of the first, for the panel's first output pixel.
        taps: kernel row and column of each; for a packed source, a kernel row is one tap.
        tap_bytes: of each tap.
    """

    offset: int
    taps: tuple[tuple[int, int], ...]
    tap_bytes: int


class Panel:
    """The panel of `rows` x `columns` output pixels of a layer.

    Attributes:
        pixel_bytes: from one output pixel to the next.
        pitch: output pixels from one row to the next.
        planes: in the order of their memory.
        size_bytes: of all, and of what the last tile reads beyond them.
        runs: in the order in which they are summed.
    """

    def __init__(self, layer: Layer, rows: int, columns: int, depth: int, *, separate: bool) -> None:
        """
        Args:
            depth: bytes of a pixel that a tile holds.
            separate: whether each kernel column has planes of its own: more is copied, and no pixel is left over
                between rows.
        """
        self.layer, self.rows, self.columns, self.separate = layer, rows, columns, separate
        places = self._packed() if layer.source.packed else self._blocked()
        self.planes: list[Plane] = []
        size = 0
        for key in sorted({key for key, _ in places.values()}):
            offsets = [offset for own, offset in places.values() if own == key]
            high, wide = (rows + max(down for down, _ in offsets), columns + max(right for _, right in offsets))
            self.planes.append(Plane(key, high, wide, size))
            size += high * self.pitch * self.pixel_bytes
        self.size_bytes = size + depth
        self.runs = self._runs(places)
        self.depth = depth

    def _blocked(self) -> dict[tuple[int, int], tuple[Key, tuple[int, int]]]:
        """For each tap its plane, and how many pixels of it down and right it lies."""
        window, places = self.layer.window, {}
        (stride_h, stride_w), (dilation_h, dilation_w) = window.strides, window.dilation
        for row in range(window.kernel[0]):
            for column in range(window.kernel[1]):
                (down, first_row), at = divmod(row * dilation_h, stride_h), column * dilation_w
                right, first_column = (0, at) if self.separate else divmod(at, stride_w)
                places[row, column] = (first_row, first_column), (down, right)
        self.tap_bytes = self.pixel_bytes = self.layer.source.blocks * self.layer.source.block
        self.pitch = self.columns + max(right for _, (_, right) in places.values())
        return places

    def _packed(self) -> dict[tuple[int, int], tuple[Key, tuple[int, int]]]:
        """A kernel row is one run of bytes already, at any column."""
        window, channels = self.layer.window, self.layer.source.channels
        (stride_h, stride_w), (kernel_h, kernel_w) = window.strides, window.kernel
        self.tap_bytes, self.pixel_bytes = kernel_w * channels, stride_w * channels
        beyond = -(-max(0, kernel_w - stride_w) // stride_w)
        self.pitch = self.columns + beyond
        places = {}
        for row in range(kernel_h):
            down, first_row = divmod(row * window.dilation[0], stride_h)
            places[row, 0] = (first_row, 0), (down, beyond)
        return places

    def _runs(self, places: dict[tuple[int, int], tuple[Key, tuple[int, int]]]) -> tuple[Run, ...]:
        planes = {plane.first: plane for plane in self.planes}
        found: list[tuple[int, list[tuple[int, int]]]] = []
        for tap, (key, (down, right)) in sorted(places.items(), key=lambda place: (place[0][0], place[1])):
            across = 0 if self.layer.source.packed else right
            offset = planes[key].offset + (down * self.pitch + across) * self.pixel_bytes
            if found and found[-1][0] + len(found[-1][1]) * self.tap_bytes == offset and found[-1][1][-1][0] == tap[0]:
                found[-1][1].append(tap)
            else:
                found.append((offset, [tap]))
        return tuple(Run(offset, tuple(taps), self.tap_bytes) for offset, taps in found)

    @property
    def length(self) -> int:
        """Pixels from the first output to the last, with those between rows."""
        return (self.rows - 1) * self.pitch + self.columns

    @property
    def copied_bytes(self) -> int:
        """What is copied into a panel."""
        return sum(plane.rows * plane.columns for plane in self.planes) * self.pixel_bytes

    @property
    def offsets(self) -> Array:
        """`[steps] int32`: the byte at which each step's tile of activations begins, for the first output pixel."""
        starts = [run.offset + at for run in self.runs for at in range(0, len(run.taps) * run.tap_bytes, self.depth)]
        return np.array(starts, np.int32)

    def arrange(self, weights: Array) -> Array:
        """`[O, KH, KW, C]` -> `[O, steps, depth]`, filled up with zeros."""
        filters, parts = len(weights), []
        for run in self.runs:
            size = len(run.taps) * run.tap_bytes
            filled = np.zeros((filters, -(-size // self.depth) * self.depth), weights.dtype)
            for place, (row, column) in enumerate(run.taps):
                tap = weights[:, row] if self.layer.source.packed else weights[:, row, column]
                tap = tap.reshape(filters, -1)
                filled[:, place * run.tap_bytes : place * run.tap_bytes + tap.shape[1]] = tap
            parts.append(filled.reshape(filters, -1, self.depth))
        return np.concatenate(parts, axis=1)

    def copy(self, program: Program, source: Buffer, first_byte: Expr, memory: Buffer, start: int) -> None:
        """Lays the panel out.

        Args:
            first_byte: the first of the window of the panel's first output pixel.
            memory, start: where the panel begins.
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


class _Interleave:
    """One row of pixels, from blocks of channels to all channels side by side."""

    def __init__(self, program: Program, source: Buffer, memory: Buffer, panel: Panel) -> None:
        self.program, self.source, self.memory = program, source, memory
        image = panel.layer.source
        self.plane, self.blocks, self.pixel_bytes = image.plane, image.blocks, panel.pixel_bytes
        self.step = panel.layer.window.strides[1] * image.pixel
        self.neighbours = panel.layer.window.strides[1] == 1

    def line(self, at: Expr, to: Expr, columns: int) -> None:
        quads = self.neighbours and columns >= _QUAD
        wide = _QUAD if quads else 1
        with self.program.loop(-(-columns // wide), "column") as step:
            column = self.program.bind(at_most(step * wide, columns - wide))
            place = self.program.bind(at + column * self.step)
            goal = self.program.bind(to + column * self.pixel_bytes)
            deep = min(_QUAD, self.blocks)
            with self.program.loop(-(-self.blocks // deep), "part") as part:
                block = self.program.bind(at_most(part * deep, self.blocks - deep))
                begin = self.program.bind(place + block * self.plane)
                end = self.program.bind(goal + block * _PART_BYTES)
                if quads and deep == _QUAD:
                    self._transposed(begin, end)
                else:
                    self._piecewise(begin, end, wide, deep)

    def _piecewise(self, at: Expr, to: Expr, pixels: int, blocks: int) -> None:
        for pixel in range(pixels):
            for block in range(blocks):
                part = load(self.source, at + (pixel * self.step + block * self.plane), _PART_BYTES)
                self.program.store(
                    self.memory, to + (pixel * self.pixel_bytes + block * _PART_BYTES), part, _PART_BYTES
                )

    def _transposed(self, at: Expr, to: Expr) -> None:
        """Four pixels of four blocks: a square of parts of 16 bytes."""
        vectors = [
            self._kept(bits(_DWORDS, load(self.source, at + block * self.plane, _QUAD_BYTES))) for block in range(4)
        ]
        halves = [
            [self._kept(_parts(vectors[block], vectors[block + 1], first)) for block in (0, 2)]
            for first in ((0, 1, 4, 5), (2, 3, 6, 7))
        ]
        for pixel in range(_QUAD):
            (first, second), which = halves[pixel // 2], (0, 2, 4, 6) if pixel % 2 == 0 else (1, 3, 5, 7)
            square = bits(f"uint8x{_QUAD_BYTES}", _parts(first, second, which))
            self.program.store(self.memory, to + pixel * self.pixel_bytes, square, _QUAD_BYTES)

    def _kept(self, value: Expr) -> Expr:
        return self.program.bind(value, _DWORDS)


def _parts(first: Expr, second: Expr, parts: tuple[int, ...]) -> Expr:
    """A vector of four of the eight parts of two."""
    return tirx.Shuffle([first, second], [tirx.const(4 * part + word, "int32") for part in parts for word in range(4)])
