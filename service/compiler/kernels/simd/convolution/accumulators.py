"""The accumulators of a tile (pixels by blocks of output channels). They stay in registers from the bias to the
epilogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, load
from service.compiler.kernels.simd.convolution.output import Output
from service.compiler.kernels.simd.convolution.wide import WideOutput
from service.compiler.kernels.vector.isa import Pairs
from service.compiler.kernels.vector.lanes import Lanes

Operand = tuple[Expr, ...]  # an operand of `Isa.dot`


@dataclass(frozen=True)
class Tile:
    """The part of an output whose accumulators are in registers: `rows` x `columns` pixels by `blocks` output
    blocks."""

    rows: int
    columns: int
    blocks: int

    def steps(self, layer: Layer) -> list[int]:
        """Returns, for each pixel of the tile, the distance in bytes from the first pixel's window to the pixel's
        window."""
        down, right = layer.steps
        return [row * down + column * right for row in range(self.rows) for column in range(self.columns)]


class Accumulators:
    """One accumulator for each pixel and block."""

    def __init__(self, lanes: Lanes, tile: Tile, bias: Buffer, block: Expr, pairs: Pairs | None = None) -> None:
        """Initializes the accumulators with the bias.

        Args:
            block: the first block of the tile.
            pairs: instructions that multiply pairs of neighboring pixels. With these, two accumulators contain sums of
                both pixels of a pair until `settle` is called.
        """
        self._isa, self._tile, self._block, self._pairs = lanes.isa, tile, block, pairs
        self._pixels = [(row, column) for row in range(tile.rows) for column in range(tile.columns)]
        self._registers = {}
        for position in range(tile.blocks):
            start = lanes.keep(load(bias, (block + position) * self._isa.lanes, self._isa.lanes))
            starts = [start] if pairs is None else [lanes.keep(value) for value in pairs.started(start)]
            for row, column in self._accumulated_pixels:
                register = self._registers[(row, column), position] = lanes.program.register("int32", self._isa.lanes)
                register.value = starts[column % len(starts)]

    @property
    def _accumulated_pixels(self) -> list[tuple[int, int]]:
        """Returns the pixels that have accumulators. With pairs, each row gets an even number of them."""
        columns = self._tile.columns + (self._tile.columns % 2 if self._pairs else 0)
        return [(row, column) for row in range(self._tile.rows) for column in range(columns)]

    def add(self, operands: Iterable[Operand], weights: Sequence[Operand]) -> None:
        """Adds to each accumulator the products of its pixel's operand and its block's weights.

        Args:
            operands: one for each pixel, row by row.
            weights: one for each block.
        """
        for pixel, activations in zip(self._pixels, operands, strict=True):
            for index, factors in enumerate(weights):
                accumulator = self._registers[pixel, index]
                accumulator.value = self._isa.dot(accumulator.value, activations, factors)

    def add_pairs(self, rows: Sequence[Sequence[Expr]], weights: Sequence[tuple[Expr, Expr]]) -> None:
        """Does the same as `add` for pairs of pixels.

        Args:
            rows: for each row, the operands of its pairs.
            weights: one for each block.
        """
        assert self._pairs is not None
        for row, operands in enumerate(rows):
            for pair, operand in enumerate(operands):
                for index, factors in enumerate(weights):
                    for half, own in enumerate(factors):
                        totals = self._registers[(row, 2 * pair + half), index]
                        totals.value = self._pairs.multiply(totals.value, operand, own)

    def settle(self, lanes: Lanes) -> None:
        """Converts accumulators that belong to pairs of pixels to accumulators of single pixels."""
        if self._pairs is None:
            return
        for index in range(self._tile.blocks):
            for row, column in self._accumulated_pixels[::2]:
                both = [self._registers[(row, at), index] for at in (column, column + 1)]
                values = [lanes.keep(value) for value in self._pairs.separate(both[0].value, both[1].value)]
                for register, value in zip(both, values, strict=True):
                    register.value = value

    def store(self, output: Output | WideOutput, image: Expr, row: Expr, column: Expr) -> None:
        """Applies the epilogue to all accumulators and stores the results.

        `row` and `column` are the position of the tile's first pixel.
        """
        for index in range(self._tile.blocks):
            values = [self._registers[pixel, index].value for pixel in self._pixels]
            block = self._block + index
            output.store_tile(values, self._tile.columns, output.channels(block), image, block, row, column)
