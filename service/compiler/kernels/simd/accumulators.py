"""The accumulators of a tile of pixels by blocks of channels, in registers from the bias to the epilogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, load
from service.compiler.kernels.simd.lanes import Lanes
from service.compiler.kernels.simd.output import Output
from service.compiler.kernels.simd.wide import WideOutput

Operand = tuple[Expr, ...]  # what `Isa.dot` multiplies


@dataclass(frozen=True)
class Tile:
    """The part of an output held in registers: `rows` x `columns` pixels by `blocks` blocks of output channels."""

    rows: int
    columns: int
    blocks: int

    def steps(self, layer: Layer) -> list[int]:
        """Bytes from the window of the first pixel to that of each, row by row."""
        down, right = layer.steps
        return [row * down + column * right for row in range(self.rows) for column in range(self.columns)]


class Accumulators:
    """One accumulator for each pixel and block."""

    def __init__(self, lanes: Lanes, tile: Tile, bias: Buffer, block: Expr) -> None:
        """Starts the accumulators with the bias; `block` is the tile's first."""
        self._isa, self._tile, self._block = lanes.isa, tile, block
        self._pixels = [(row, column) for row in range(tile.rows) for column in range(tile.columns)]
        self._registers = {}
        for place in range(tile.blocks):
            start = lanes.keep(load(bias, (block + place) * self._isa.lanes, self._isa.lanes))
            for pixel in self._pixels:
                register = self._registers[pixel, place] = lanes.program.register("int32", self._isa.lanes)
                register.value = start

    def add(self, operands: Iterable[Operand], weights: Sequence[Operand]) -> None:
        """Adds to each the product of its pixel's operand (row by row) and its block's weights."""
        for pixel, activations in zip(self._pixels, operands, strict=True):
            for place, factors in enumerate(weights):
                accumulator = self._registers[pixel, place]
                accumulator.value = self._isa.dot(accumulator.value, activations, factors)

    def store(self, output: Output | WideOutput, image: Expr, row: Expr, column: Expr) -> None:
        """Finishes them all; `row` and `column` are those of the tile's first pixel."""
        for place in range(self._tile.blocks):
            values = [self._registers[pixel, place].value for pixel in self._pixels]
            block = self._block + place
            output.store_tile(values, self._tile.columns, output.channels(block), image, block, row, column)
