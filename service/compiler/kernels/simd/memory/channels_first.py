"""Converts between tensors `[N, C, H, W]`, as in the inputs and outputs of ONNX and PyTorch, and kernels' images.

One pass converts the type of the values and transposes them. It loads a tile of some pixels by some channels,
transposes it in registers, and stores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load, shuffle, splat
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.walk import Run, Vector, View, Walk

_IN_A_WORD = 4  # the number of bytes in a 32-bit word


class ChannelsFirst:
    """A conversion between a tensor `[N, C, H, W]` and an image.

    Attributes:
        image: the layout of the image.
        tensor, memory: the buffers of the tensor and of the image.
        convert: a function that converts a vector of the source's values to the destination's type. Values of the image
            are bytes.
    """

    def __init__(
        self, program: Program, isa: Isa, image: Image, tensor: Buffer, memory: Buffer, convert: Vector, parallel: bool
    ) -> None:
        self.program, self.isa, self.image, self.parallel = program, isa, image, parallel
        self.tensor, self.memory, self.convert = tensor, memory, convert
        self.channel = image.height * image.width  # the stride of a channel in the tensor

    def pack(self, fill: Sequence[Expr]) -> None:
        """Writes the image from the tensor. Filler in the last block is set to 0.

        `fill` is a list with the value of the halo, or an empty list if the image has none.
        """
        for run, count in self._runs():
            for value in fill:
                plane = run.image * self.image.blocks + run.block
                fill_halo(self.program, self.isa.bytes, self.memory, self.image, value, plane=plane, when=run.first)
            for first, channels in _parts(count, self.isa.lanes):
                with self._squares(run, channels) as (pixels, (source, target)):
                    rows = self._rows(source + first * self.channel, channels, pixels)
                    self._store(rows, target + first, channels, pixels)

    def unpack(self) -> None:
        """Writes the tensor from the image, which must be in blocks."""
        lanes, program = self.isa.lanes, self.program
        for run, channels in self._runs():
            with self._squares(run, lanes) as (pixels, (target, source)):
                loaded = [
                    program.bind(load(self.memory, source + pixel * lanes, lanes), f"uint8x{lanes}")
                    for pixel in range(pixels)
                ]
                nothing = splat(tirx.const(0, "uint8"), lanes)
                columns = _transposed(program, [*loaded, *[nothing] * (lanes - pixels)], lanes)
                for channel in range(channels):
                    row = columns[channel] if pixels == lanes else _first(columns[channel], pixels)
                    program.store(self.tensor, target + channel * self.channel, self.convert(row, pixels), pixels)

    def _runs(self) -> Iterator[tuple[Run, int]]:
        """Yields (run of pixels, number of channels to convert), first for all whole blocks, then for the block with
        filler."""
        image = self.image
        per_block = image.pixel
        tensor = View(0, (image.channels * self.channel, per_block * self.channel, image.width, 1))
        whole, rest = divmod(image.channels, per_block)
        for first, blocks, channels in ((0, whole, per_block), (whole, 1, rest)):
            if blocks and channels:
                views = [view.from_block(first) for view in (tensor, View.of(image))]
                extents = (image.batch, blocks, image.height, image.width)
                with Walk(extents, views, 0, parallel=self.parallel).runs(self.program) as run:
                    yield Run(run.pixels, run.strides, run.starts, run.image, run.block + first, run.first), channels

    @contextmanager
    def _squares(self, run: Run, channels: int) -> Iterator[tuple[int, tuple[Expr, Expr]]]:
        """Divides the pixels of a run into tiles of equal size, and writes the loop over the tiles.

        Yields the number of pixels of a tile, and the offsets of the tile's first pixel in the tensor and in the image.
        The last tile overlaps the previous one.
        """
        pixels = self.isa.lanes
        while pixels > run.pixels:
            pixels //= 2
        with self.program.loop(-(-run.pixels // pixels), "square") as square:
            at = self.program.bind(at_most(square * pixels, run.pixels - pixels))
            tensor, image = (
                self.program.bind(start + at * stride) for start, stride in zip(run.starts, run.strides, strict=True)
            )
            yield pixels, (tensor, image)

    def _rows(self, start: Expr, channels: int, pixels: int) -> list[Expr]:
        """Loads and converts a tile from the tensor, as one vector of pixels for each channel."""
        rows = [
            self.convert(load(self.tensor, start + channel * self.channel, pixels), pixels)
            for channel in range(channels)
        ]
        return [self.program.bind(row, _vector("uint8", pixels)) for row in rows]

    def _store(self, rows: Sequence[Expr], target: Expr, channels: int, pixels: int) -> None:
        """Transposes a tile and stores it in the image, with the channels of each pixel contiguous."""
        program, lanes, stride = self.program, self.isa.lanes, self.image.pixel
        if channels == stride <= _IN_A_WORD:
            program.store_first(self.memory, target, *_interleave_rows(rows, pixels))
            return
        nothing = splat(tirx.const(0, "uint8"), lanes)
        filled = [row if pixels == lanes else _repeated(row, pixels, lanes) for row in rows]
        columns = _transposed(program, [*filled, *[nothing] * (lanes - channels)], lanes)
        width = channels if self.image.packed else lanes
        for pixel in range(pixels):
            program.store_first(self.memory, target + pixel * stride, columns[pixel], lanes, width)


def _parts(channels: int, most: int) -> list[tuple[int, int]]:
    """Divides channels into parts of at most `most` channels. Returns (first channel, number of channels) for each
    part."""
    return [(first, min(most, channels - first)) for first in range(0, channels, most)]


def _interleave_rows(rows: Sequence[Expr], pixels: int) -> tuple[Expr, int, int]:
    """Interleaves the bytes of up to four rows. Returns the vector, its lanes, and the number of lanes in use."""
    words = _vector("int32", pixels)
    total = tirx.Cast(words, rows[0])
    for index, row in enumerate(rows[1:], 1):
        shift = tirx.const(8 * index, "int32")
        total = total | (tirx.Cast(words, row) << (splat(shift, pixels) if pixels > 1 else shift))
    vector = bits(f"uint8x{_IN_A_WORD * pixels}", total)
    taken = [_IN_A_WORD * pixel + channel for pixel in range(pixels) for channel in range(len(rows))]
    filled = taken + [0] * (_IN_A_WORD * pixels - len(taken))
    return (shuffle(vector, filled) if len(rows) < _IN_A_WORD else vector), _IN_A_WORD * pixels, len(taken)


def _transposed(program: Program, rows: Sequence[Expr], size: int) -> list[Expr]:
    """Transposes `size` vectors of `size` bytes each. `size` is a power of two.

    Each step interleaves the first half of the rows with the second half, byte by byte.
    """
    half, steps = size // 2, size.bit_length() - 1
    rows = list(rows)
    for _ in range(steps):
        mixed = []
        for index in range(half):
            for start in (0, half):
                order = [tirx.const(start + lane // 2 + size * (lane % 2), "int32") for lane in range(size)]
                pair = tirx.Shuffle([rows[index], rows[index + half]], order)
                mixed.append(program.bind(pair, f"uint8x{size}"))
        rows = mixed
    return rows


def _repeated(vector: Expr, pixels: int, lanes: int) -> Expr:
    """Repeats `vector` to fill `lanes`."""
    if pixels == 1:
        return splat(vector, lanes)
    order = [tirx.const(lane, "int32") for lane in range(lanes)]
    return tirx.Shuffle([vector] * (lanes // pixels), order)


def _first(vector: Expr, count: int) -> Expr:
    return shuffle(vector, range(count)) if count > 1 else tirx.Shuffle([vector], [tirx.const(0, "int32")])


def _vector(name: str, lanes: int) -> str:
    return f"{name}x{lanes}" if lanes > 1 else name
