"""Convolutions and dense layers. The accumulators of a tile (pixels by blocks of output channels) stay in registers for
the whole reduction.

A group is `Isa.group` input channels, or as many neighboring bytes of a packed row. Each step of the reduction loads
one group of every pixel of the tile, and multiplies it by the weights of every block of the tile. Tiles at an edge
overlap their neighbors, so no separate code is needed for them. Weights are stored in the order in which the kernel
loads them.
"""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, load
from service.compiler.kernels.simd.convolution.accumulators import Accumulators, Tile
from service.compiler.kernels.simd.convolution.output import output_of
from service.compiler.kernels.simd.convolution.reduction import Excess, Reduction, pairs_of
from service.compiler.kernels.vector.isa import Isa, Pairs
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array
from service.core.words import plural


def conv(
    isa: Isa, layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, tile: Tile, *, parallel: bool
) -> Kernel:
    """Returns the kernel of a convolution, its requantization, and a residual addition if the epilogue has one.

    Args:
        weights: `[O, KH, KW, C]` integers minus their zero point.
        bias: `[O]`, with the contribution of the source's zero point subtracted (`folded_bias`).
        epilogue: an epilogue whose arrays are extended to whole blocks.
        parallel: true to divide tiles among threads.
    """
    return _Conv(isa, layer, weights, bias, epilogue, tile, parallel).kernel()


class _Conv:
    def __init__(
        self, isa: Isa, layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, tile: Tile, parallel: bool
    ) -> None:
        self.isa, self.layer, self.epilogue, self.tile, self.parallel = isa, layer, epilogue, tile, parallel
        self.pairs = pairs_of(isa, layer, tile.columns)
        self.reduction = Reduction(isa, layer, self.pairs.depth if self.pairs else None)
        self.blocks = layer.destination.blocks
        self.block_tiles = -(-self.blocks // tile.blocks)
        self.excess = Excess(weights, isa)
        self.constants: list[Array] = [self._packed(self.excess.weights), epilogue.requantization.started(bias)]
        self.constants += epilogue.constants
        if self.excess:
            single = Reduction(isa, layer)
            parts = [self._tiled(part, single) for part in self.excess.parts]
            first, offsets, rest = Excess.groups(single, parts)
            self.constants += [first, offsets, isa.pack_weights(rest).reshape(-1)]

    def _tiled(self, weights: Array, reduction: Reduction) -> Array:
        """Returns the weights as `[block tiles, blocks, lanes, steps, rows, columns, unrolled, group]`.

        The last block tile overlaps the previous one.
        """
        lanes = self.isa.lanes
        arranged = reduction.arrange(weights)
        filled = np.zeros((self.blocks * lanes, *arranged.shape[1:]), arranged.dtype)
        filled[: len(arranged)] = arranged
        blocks = filled.reshape(self.blocks, lanes, *arranged.shape[1:])
        starts = [min(tile * self.tile.blocks, self.blocks - self.tile.blocks) for tile in range(self.block_tiles)]
        return np.stack([blocks[start : start + self.tile.blocks] for start in starts])

    def _packed(self, weights: Array) -> Array:
        """Returns the weights in the order of loading: tile, step, row, column, unrolled group, block."""
        tiled = self._tiled(weights, self.reduction)
        return self._words.pack_weights(tiled.transpose(0, 3, 4, 5, 6, 1, 2, 7)).reshape(-1)

    @property
    def _words(self) -> Isa | Pairs:
        """The instructions that determine the layout of the weights."""
        return self.pairs or self.isa

    def kernel(self) -> Kernel:
        program = Program()
        self.program, self.lanes = program, Lanes(program, self.isa)
        layer = self.layer
        self.source = program.parameter("source", "uint8", layer.source.size_bytes)
        residual = program.parameter("residual", "uint8", layer.residual.size_bytes) if layer.residual else None
        self.buffers = [
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
        ]
        destination = program.parameter("destination", self.epilogue.dtype, layer.destination.size_bytes)
        constants = self.buffers[2 : 2 + len(self.epilogue.constants)]
        self.output = output_of(self.lanes, self.epilogue, layer, destination, residual, constants)
        height, width = layer.output
        columns, rows = -(-width // self.tile.columns), -(-height // self.tile.rows)
        tiles = rows * columns
        items = layer.source.batch * self.block_tiles * tiles
        with program.loop(items, "item", parallel=self.parallel) as item:
            image, rest = item // (self.block_tiles * tiles), item % (self.block_tiles * tiles)
            block_tile, at = program.bind(rest // tiles), rest % tiles
            row = at_most(at // columns * self.tile.rows, height - self.tile.rows)
            column = at_most(at % columns * self.tile.columns, width - self.tile.columns)
            first_block = at_most(block_tile * self.tile.blocks, self.blocks - self.tile.blocks)
            self.output.fill_halo(image, first_block, blocks=self.tile.blocks, when=at == 0)
            self._tile(program.bind(image), block_tile, program.bind(row), program.bind(column))
        facts = {
            "tile": f"{self.tile.rows}x{self.tile.columns} pixels, {plural(self.tile.blocks, 'block')}",
            "excess_groups": len(self.constants[-2]) if self.excess else 0,
        }
        return Kernel("conv", program.function(), tuple(self.constants), self.output.size_bytes, facts)

    def _tile(self, image: Expr, block_tile: Expr, row: Expr, column: Expr) -> None:
        program = self.program
        block = program.bind(at_most(block_tile * self.tile.blocks, self.blocks - self.tile.blocks))
        accumulators = Accumulators(self.lanes, self.tile, self.buffers[1], block, self.pairs)
        window = program.bind(self.layer.first_byte(image, row, column))
        reduction, (rows, columns) = self.reduction, self.reduction.positions
        with (
            program.loop(reduction.steps, "step") as step,
            program.loop(rows, "kh") as kh,
            program.loop(columns, "kw") as kw,
        ):
            weights = self._weights_offset(block_tile, step, kh, kw)
            for unrolled in range(reduction.unrolled):
                group = window + reduction.offset(step, kh, kw, unrolled)
                self._add(accumulators, group, weights + unrolled * self._group_elements)
        accumulators.settle(self.lanes)
        if self.excess:
            self._add_excess(accumulators, window, block_tile)
        accumulators.store(self.output, image, row, column)

    @property
    def _group_elements(self) -> int:
        return self.tile.blocks * self._words.weight_elements

    def _weights_offset(self, block_tile: Expr, step: Expr, row: Expr, column: Expr) -> Expr:
        rows, columns = self.reduction.positions
        position = ((block_tile * self.reduction.steps + step) * rows + row) * columns + column
        return position * (self.reduction.unrolled * self._group_elements)

    def _add(self, accumulators: Accumulators, group: Expr, offset: Expr) -> None:
        """Adds the products of one reduction step: a group of every pixel, by the weights of every block.

        Args:
            group: the byte offset of the first pixel's group in the source.
            offset: the offset of the weights.
        """
        if self.pairs is None:
            self._accumulate(accumulators, group, self.buffers[0], offset)
            return
        program, pairs, (down, _) = self.program, self.pairs, self.layer.steps
        weights = [
            pairs.weights(program, self.buffers[0], offset + index * pairs.weight_elements)
            for index in range(self.tile.blocks)
        ]
        lines = [group + row * down for row in range(self.tile.rows)]
        plane, columns = self.layer.source.plane, self.tile.columns
        accumulators.add_pairs([pairs.operands(program, self.source, line, plane, columns) for line in lines], weights)

    def _accumulate(self, accumulators: Accumulators, group: Expr, buffer: Buffer, offset: Expr) -> None:
        """Adds the products of one reduction step without pairs, with weights from `buffer`."""
        isa, program = self.isa, self.program
        weights = [
            isa.weights(program, buffer, offset + index * isa.weight_elements) for index in range(self.tile.blocks)
        ]
        accumulators.add(isa.operands(program, self.source, group, self.tile.steps(self.layer)), weights)

    def _add_excess(self, accumulators: Accumulators, window: Expr, block_tile: Expr) -> None:
        first, offsets, weights = self.buffers[-3:]
        program = self.program
        start = program.bind(load(first, block_tile, 1))
        with program.loop(load(first, block_tile + 1, 1) - start, "excess") as position:
            group = program.bind(start + position)
            at = program.bind(window + load(offsets, group, 1))
            self._accumulate(accumulators, at, weights, group * (self.tile.blocks * self.isa.weight_elements))
