"""Depthwise convolutions of float32: each channel has its own filter.

A vector contains channels of one pixel. A tile is some pixels of an output row, whose sums are in registers. The kernel
adds products tap by tap. For each kernel row, it loads an element of the source once for all pixels of the tile that
use it. An iteration of the parallel loop computes a band of rows. If the source needs a border of zeros, the iteration
first copies the part that it reads, with its border, to its own memory, where it stays in cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, load
from service.compiler.kernels.simd.float.factors import copy
from service.compiler.kernels.simd.float.memory import Padded, clear
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array
from service.core.words import plural

_MOST_PIXELS = 16
_SHARES = 8  # the desired number of bands
_BAND_BYTES = 512 << 10  # the size of a band's copied source rows is at most this part of the L2 cache


@dataclass(frozen=True)
class Depthwise:
    """A layer that reads `[N, H, W, C]` with a border of zeros, and writes `[N, OH, OW, C]`.

    Attributes:
        weights: `[C, KH, KW]`.
        bias: `[C]`.
    """

    padded: Padded
    output: tuple[int, int]
    window: Window
    weights: Array
    bias: Array | None

    @property
    def channels(self) -> int:
        return self.padded.shape[3]


def float_depthwise(isa: Isa, layer: Depthwise) -> Kernel:
    """Returns the kernel of the layer.

    Raises:
        Declined: there are fewer channels than a vector has lanes, or a kernel row does not fit the registers.
    """
    if layer.channels < isa.lanes:
        raise Declined(f"its {layer.channels} channels are fewer than the lanes of a vector of {isa.name}")
    return _Depthwise(isa, layer, _pixels(isa, layer)).kernel()


def _pixels(isa: Isa, layer: Depthwise) -> int:
    """Returns the number of pixels of a tile.

    A row has as few tiles as the registers allow, and these have almost equal sizes.
    """
    most = min(_MOST_PIXELS, isa.registers - layer.window.kernel[1] - 2, layer.output[1])
    if most < min(4, layer.output[1]):
        raise Declined(f"the {layer.window.kernel[1]} taps of a kernel row leave too few registers for sums")
    return -(-layer.output[1] // -(-layer.output[1] // most))


class _Depthwise:
    def __init__(self, isa: Isa, layer: Depthwise, pixels: int) -> None:
        self.isa, self.layer, self.pixels = isa, layer, pixels
        channels, lanes = layer.channels, isa.lanes
        self.starts = [min(at, channels - lanes) for at in range(0, channels, lanes)]
        by_tap = layer.weights.reshape(channels, -1).T
        self.constants = [np.stack([by_tap[:, start : start + lanes] for start in self.starts]).reshape(-1)]
        if layer.bias is not None:
            self.constants.append(np.ascontiguousarray(layer.bias))

    def kernel(self) -> Kernel:
        program = self.program = Program()
        self.lanes = Lanes(program, self.isa)
        layer, padded = self.layer, self.layer.padded
        n, height, width, channels = padded.shape
        made = n * layer.output[0] * layer.output[1] * channels
        source = program.parameter("source", "float32", n * height * width * channels)
        self.buffers = [
            program.parameter(f"constant_{position}", "float32", array.size)
            for position, array in enumerate(self.constants)
        ]
        self.written = program.parameter("destination", "float32", made)
        taps = layer.window.kernel[0] * layer.window.kernel[1]
        parallel = worth_sharing(self.isa, made / self.isa.lanes * taps * self.isa.rates.load)
        (rows, _), (down, _) = padded.extents, layer.window.strides
        across, band = -(-layer.output[1] // self.pixels), self._band()
        bands = -(-layer.output[0] // band)
        with program.loop(n * bands, "item", parallel=parallel) as item:
            image = program.bind(item // bands)
            first = program.bind(at_most(item % bands * band, layer.output[0] - band))
            seen, first_line = source, image * rows + first * down
            if padded.halo:
                seen, first_line = self._copied(source, image, first * down, self._lines(band)), 0
            # Tiles are computed column by column, because vertically neighboring tiles read the same rows, which are
            # then still in L1 cache.
            with program.loop(len(self.starts) * across, "column") as position:
                block = program.bind(position // across)
                column = program.bind(at_most(position % across * self.pixels, layer.output[1] - self.pixels))
                with program.loop(band, "row") as row:
                    line = program.bind(first_line + row * down)
                    made_line = program.bind(image * layer.output[0] + first + row)
                    self._tile(seen, line, made_line, column, block)
        facts = {"tile": f"1x{self.pixels} pixels, {plural(band, 'row')}"}
        return Kernel("float_depthwise", program.function(), tuple(self.constants), 4 * made, facts)

    def _lines(self, rows: int) -> int:
        """Returns the number of source rows that `rows` output rows depend on."""
        window = self.layer.window
        return (rows - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilation[0] + 1

    def _band(self) -> int:
        """Returns the number of output rows of a band.

        The number is small enough for several bands, but so large that most source rows are copied for only one band.
        """
        height, line_bytes = self.layer.output[0], 4 * self.layer.padded.extents[1] * self.layer.channels
        rows = max(-(-height // _SHARES), min(self._lines(1), height))
        while rows > 1 and self._lines(rows) * line_bytes > _BAND_BYTES:
            rows -= 1
        return rows

    def _copied(self, source: Buffer, image: Expr, first: Expr, lines: int) -> Buffer:
        """Copies `lines` source rows with their border, from row `first` on, to memory of this thread."""
        program, lanes, (_, height, width, channels) = self.program, self.isa.lanes, self.layer.padded.shape
        top, left, _, right = self.layer.padded.halo.sides
        line = self.layer.padded.extents[1] * channels
        memory = program.workspace(lines * line, "float32")
        with program.loop(lines, "line") as number:
            y, to = program.bind(first + number - top), program.bind(number * line)
            within = tirx.all(y >= tirx.const(0, "int32"), y < tirx.const(height, "int32"))
            with program.when(within):
                clear(program, lanes, (memory, to), left * channels)
                begin = program.bind((image * height + y) * (width * channels))
                copy(program, lanes, (source, begin), (memory, to + left * channels), width * channels)
                clear(program, lanes, (memory, to + (left + width) * channels), right * channels)
            with program.when(tirx.Not(within)):
                clear(program, lanes, (memory, to), line)
        return memory

    def _tile(self, source: Buffer, line: Expr, made_line: Expr, column: Expr, block: Expr) -> None:
        """Computes a tile: some pixels from `column` on, for a block of channels.

        `line` is the first source row that the pixels read.
        """
        program, layer, lanes = self.program, self.layer, self.isa.lanes
        columns, channels, (kernel_h, kernel_w) = layer.padded.extents[1], layer.channels, layer.window.kernel
        (_, right), (step_h, step_w) = layer.window.strides, layer.window.dilation
        channel = program.bind(at_most(block * lanes, channels - lanes))
        begin = program.bind((line * columns + column * right) * channels + channel)
        sums = [program.register("float32", lanes) for _ in range(self.pixels)]
        for register in sums:
            register.value = self.lanes.const(0.0, "float32")
        with program.loop(kernel_h, "tap_row") as i:
            at = program.bind(begin + i * (step_h * columns * channels))
            tap = program.bind((block * kernel_h + i) * (kernel_w * lanes))
            weights = [
                self.lanes.keep(load(self.buffers[0], tap + j * lanes, lanes), "float32") for j in range(kernel_w)
            ]
            shown: dict[int, list[tuple[int, int]]] = {}  # maps an index in the source row to its (pixel, tap) pairs
            for pixel in range(self.pixels):
                for j in range(kernel_w):
                    shown.setdefault(pixel * right + j * step_w, []).append((pixel, j))
            for position in sorted(shown):
                element = self.lanes.keep(load(source, at + position * channels, lanes), "float32")
                for pixel, j in shown[position]:
                    sums[pixel].value = self.lanes.fma(element, weights[j], sums[pixel].value)
        bias = load(self.buffers[1], channel, lanes) if layer.bias is not None else None
        bias = None if bias is None else self.lanes.keep(bias, "float32")
        for pixel, register in enumerate(sums):
            to = program.bind((made_line * layer.output[1] + column + pixel) * channels + channel)
            program.store(self.written, to, register.value if bias is None else register.value + bias, lanes)
