"""Depthwise convolutions of float32: each channel has a filter of its own.

A vector holds channels of one pixel. Some pixels of a row are added up in registers, tap by tap; an element of the
source is loaded once for all pixels of the tile that a kernel row shows it to. An item computes a band of rows; what
they see of a source that wants a border of zeros, it copies to memory of its own first, where it stays in the cache.
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
from service.core.arrays import Array

_MOST_PIXELS = 16
_SHARES = 8  # bands of rows, at least
_BAND_BYTES = 512 << 10  # of the second level of cache


@dataclass(frozen=True)
class Depthwise:
    """The layer: `[N, H, W, C]` with a border of zeros, to `[N, OH, OW, C]`.

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
    """The kernel.

    Raises:
        Declined: the channels fill no vector, or a kernel row not the registers.
    """
    if layer.channels < isa.lanes:
        raise Declined(f"its {layer.channels} channels fill no vector of {isa.name}")
    return _Depthwise(isa, layer, _pixels(isa, layer)).kernel()


def _pixels(isa: Isa, layer: Depthwise) -> int:
    """Pixels of a tile: those that the fewest tiles of equal size make, of as many as the registers hold."""
    most = min(_MOST_PIXELS, isa.registers - layer.window.kernel[1] - 2, layer.output[1])
    if most < min(4, layer.output[1]):
        raise Declined(f"a row of its kernel, of {layer.window.kernel[1]} taps, leaves no registers for sums")
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
            program.parameter(f"constant_{place}", "float32", array.size) for place, array in enumerate(self.constants)
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
            # Down a column of tiles, so that what several of them see is still in the first level of cache.
            with program.loop(len(self.starts) * across, "column") as place:
                block = program.bind(place // across)
                column = program.bind(at_most(place % across * self.pixels, layer.output[1] - self.pixels))
                with program.loop(band, "row") as row:
                    line = program.bind(first_line + row * down)
                    made_line = program.bind(image * layer.output[0] + first + row)
                    self._tile(seen, line, made_line, column, block)
        facts = {"tile": f"1x{self.pixels} pixels, {band} rows"}
        return Kernel("float_depthwise", program.function(), tuple(self.constants), 4 * made, facts)

    def _lines(self, rows: int) -> int:
        """Lines of the source under some rows."""
        window = self.layer.window
        return (rows - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilation[0] + 1

    def _band(self) -> int:
        """Rows of a band: as many as leave several bands, and not so few that most lines are copied twice."""
        height, line_bytes = self.layer.output[0], 4 * self.layer.padded.extents[1] * self.layer.channels
        rows = max(-(-height // _SHARES), min(self._lines(1), height))
        while rows > 1 and self._lines(rows) * line_bytes > _BAND_BYTES:
            rows -= 1
        return rows

    def _copied(self, source: Buffer, image: Expr, first: Expr, lines: int) -> Buffer:
        """Some lines of the source with its border, from number `first` on, in memory of this thread."""
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
        """Some pixels from `column` on, of a block of channels; `line` is the first of the source that they see."""
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
            shown: dict[int, list[tuple[int, int]]] = {}  # place in the row -> pixels and taps
            for pixel in range(self.pixels):
                for j in range(kernel_w):
                    shown.setdefault(pixel * right + j * step_w, []).append((pixel, j))
            for place in sorted(shown):
                element = self.lanes.keep(load(source, at + place * channels, lanes), "float32")
                for pixel, j in shown[place]:
                    sums[pixel].value = self.lanes.multiply_add(element, weights[j], sums[pixel].value)
        bias = load(self.buffers[1], channel, lanes) if layer.bias is not None else None
        bias = None if bias is None else self.lanes.keep(bias, "float32")
        for pixel, register in enumerate(sums):
            to = program.bind((made_line * layer.output[1] + column + pixel) * channels + channel)
            program.store(self.written, to, register.value if bias is None else register.value + bias, lanes)
