"""Depthwise convolutions of float32: each channel has a filter of its own.

A vector holds channels of one pixel. Some pixels of a row are added up in registers, tap by tap; an element of the
source is loaded once for all pixels of the tile that a kernel row shows it to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.kernel import Array, Declined, Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, load
from service.compiler.kernels.simd.float_product import Padded, pad
from service.compiler.kernels.simd.isa import Isa
from service.compiler.kernels.simd.lanes import Lanes
from service.compiler.kernels.simd.tiles import worth_sharing

_MOST_PIXELS = 16


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
        if padded.halo:
            memory = program.workspace(padded.size, "float32")
            pad(program, self.isa, source, memory, padded, parallel=parallel)
            source = memory
        across = -(-layer.output[1] // self.pixels)
        with program.loop(n * layer.output[0] * across, "item", parallel=parallel) as item:
            line, x = program.bind(item // across), item % across
            column = program.bind(at_most(x * self.pixels, layer.output[1] - self.pixels))
            with program.loop(len(self.starts), "block") as block:
                self._tile(source, line, column, block)
        facts = {"tile": f"1x{self.pixels} pixels"}
        return Kernel("float_depthwise", program.function(), tuple(self.constants), 4 * made, facts)

    def _tile(self, source: Buffer, line: Expr, column: Expr, block: Expr) -> None:
        program, layer, lanes = self.program, self.layer, self.isa.lanes
        (rows, columns), channels = layer.padded.extents, layer.channels
        (down, right), (step_h, step_w) = layer.window.strides, layer.window.dilation
        kernel_h, kernel_w = layer.window.kernel
        height, width = layer.output
        channel = program.bind(at_most(block * lanes, channels - lanes))
        first_row = line // height * rows + line % height * down
        begin = program.bind((first_row * columns + column * right) * channels + channel)
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
            to = program.bind((line * width + column + pixel) * channels + channel)
            program.store(self.written, to, register.value if bias is None else register.value + bias, lanes)
