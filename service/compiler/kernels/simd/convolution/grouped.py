"""Grouped convolution: each filter reads the channels of its own group.

As in `conv`, the accumulators of a tile (pixels by blocks of output channels) stay in registers for the whole
reduction. Each tile of output blocks has a list of reduction steps (`Reads`). The list covers only input channels that
a filter of the tile uses, so all other channels cost nothing.

There are two types of steps. A *shared* step loads the same `Isa.group` neighboring input channels into every lane. If
a group of the convolution has fewer channels than a block, the weights of a shared step are block-diagonal: zero for
the channels of other groups. An *own* step loads one block of input channels and shuffles its bytes, so that each lane
gets up to `Isa.group` channels of its own group. If groups have four channels (ResNeXt 32x4d), own steps need a fourth
of the products of shared steps, and one shuffle for each product. If the convolution has a depth multiplier, each group
has one channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.choices import Numbers
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Expr, Program, at_most, load
from service.compiler.kernels.simd.convolution.accumulators import Accumulators, Tile
from service.compiler.kernels.simd.convolution.output import output_of
from service.compiler.kernels.simd.convolution.reduction import Excess
from service.compiler.kernels.simd.convolution.tiles import candidates, tile_cycles
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array
from service.core.words import plural

_NOTHING = -1  # marks a lane's byte that is not used


@dataclass(frozen=True)
class Grouping:
    """The channels that each filter reads.

    Attributes:
        channels: the number of input channels of a group.
        filters: the number of output channels of a group.
        total: the number of filters of all groups.
    """

    channels: int
    filters: int
    total: int

    @staticmethod
    def of(weights: Array, groups: int) -> Grouping:
        """Returns the grouping of weights `[O, KH, KW, C / groups]`."""
        return Grouping(weights.shape[-1], len(weights) // groups, len(weights))

    def span(self, filters: Array) -> tuple[Array, Array]:
        """Returns, for each filter, the first input channel that it reads, and the channel after the last.

        For filter numbers beyond the last filter, the two channels are equal.
        """
        first = np.minimum(filters, self.total - 1) // self.filters * self.channels
        return first, np.where(filters < self.total, first + self.channels, first)


@dataclass(frozen=True)
class Reads:
    """The reduction steps of a tile of output blocks, at one kernel tap.

    Attributes:
        starts: `[steps, 2]`, for each step, the source block, and the first channel in it that the step loads.
        channels: `[steps, filters, group]`, the source channels that each filter multiplies, or `_NOTHING`.
    """

    starts: Array
    channels: Array

    @staticmethod
    def shared(isa: Isa, grouping: Grouping, filters: Array) -> Reads:
        """Returns shared steps: each loads the same neighboring channels for all filters."""
        low, high = (bound[:, None] for bound in grouping.span(filters))
        first = np.arange(low.min() // isa.group, -(-high.max() // isa.group)) * isa.group
        channels = (first[:, None] + np.arange(isa.group))[:, None, :]
        starts = np.stack([first // isa.lanes, first % isa.lanes], axis=1)
        return Reads(starts, np.where((low <= channels) & (channels < high), channels, _NOTHING))

    @staticmethod
    def own(isa: Isa, grouping: Grouping, filters: Array) -> Reads:
        """Returns own steps: in each, every filter gets the next channels of its own group in one source block."""
        low, high = grouping.span(filters)
        starts, channels, lanes, size = [], [], isa.lanes, isa.group
        for block in range(low.min() // lanes, -(-high.max() // lanes)):
            first, end = (np.clip(bound, block * lanes, (block + 1) * lanes) for bound in (low, high))
            for step in range(-(-(end - first).max() // size)):
                taken = first[:, None] + step * size + np.arange(size)
                starts.append((block, 0))
                channels.append(np.where(taken < end[:, None], taken, _NOTHING))
        return Reads(np.array(starts), np.array(channels))

    def weights(self, grouping: Grouping, filters: Array, weights: Array) -> Array:
        """Converts weights `[O, KH, KW, C / groups]` to `[steps, KH, KW, filters, group]`, with zeros for
        `_NOTHING`.
        """
        low, _ = grouping.span(filters)
        within = np.clip(self.channels - low[:, None], 0, grouping.channels - 1)
        rows = np.minimum(filters, grouping.total - 1)[:, None]
        taken = weights[rows, :, :, within]
        taken[self.channels == _NOTHING] = 0
        return np.moveaxis(taken, (3, 4), (1, 2))


@dataclass(frozen=True)
class Scheme:
    """The scheme of a grouped convolution: the tile in registers, and whether its reduction steps are own or shared."""

    tile: Tile
    own: bool

    @property
    def numbers(self) -> Numbers:
        """The scheme as a tuple of integers, as in tables of tiles."""
        return *astuple(self.tile), int(self.own)

    @staticmethod
    def of(numbers: Numbers) -> Scheme:
        *tile, own = numbers
        return Scheme(Tile(*tile), bool(own))

    def starts(self, layer: Layer) -> list[int]:
        """Returns the first block of each tile of output blocks. The last tile overlaps the previous one."""
        blocks = layer.destination.blocks
        return [min(start, blocks - self.tile.blocks) for start in range(0, blocks, self.tile.blocks)]

    def reads(self, isa: Isa, grouping: Grouping, start: int) -> tuple[Array, Reads]:
        """Returns the filters of the tile of output blocks that begins at block `start`, and the tile's reduction
        steps.
        """
        filters = np.arange(start * isa.lanes, (start + self.tile.blocks) * isa.lanes)
        return filters, (Reads.own if self.own else Reads.shared)(isa, grouping, filters)


def ranked(isa: Isa, layer: Layer, grouping: Grouping, epilogue_cycles: float) -> tuple[list[Scheme], float]:
    """Returns the candidate schemes, the one with the fewest estimated cycles first, and the first one's cycles."""
    estimate = _estimate(isa, layer, grouping, epilogue_cycles)
    schemes = [Scheme(tile, own) for tile in candidates(isa, layer) for own in (False, True)]
    fitting = [scheme for scheme in schemes if not scheme.own or _fits(isa, scheme.tile)]
    in_order = sorted(fitting, key=estimate)
    return in_order, estimate(in_order[0])


def _fits(isa: Isa, tile: Tile) -> bool:
    """Returns true if own steps fit the registers. The tile must have one block, because each block would need its own
    shuffles.
    """
    return tile.blocks == 1 and tile.rows * tile.columns + 2 * isa.weight_vectors + 1 <= isa.registers


def _estimate(isa: Isa, layer: Layer, grouping: Grouping, epilogue_cycles: float) -> Callable[[Scheme], float]:
    rate, positions = isa.rates, layer.window.kernel[0] * layer.window.kernel[1]
    counts: dict[tuple[int, bool], int] = {}

    def estimate(scheme: Scheme) -> float:
        key = scheme.tile.blocks, scheme.own
        starts = scheme.starts(layer)
        if key not in counts:
            counts[key] = sum(len(scheme.reads(isa, grouping, start)[1].starts) for start in starts)
        operand = rate.operand + (rate.gather if scheme.own else 0)
        steps = counts[key] * positions / len(starts)
        return tile_cycles(isa, layer, scheme.tile, steps, operand, epilogue_cycles)

    return estimate


def grouped(
    isa: Isa,
    layer: Layer,
    grouping: Grouping,
    weights: Array,
    bias: Array,
    epilogue: AnyEpilogue,
    scheme: Scheme,
    *,
    parallel: bool,
) -> Kernel:
    """Returns the kernel of a grouped convolution, its requantization, and a residual addition if there is one.

    Args:
        weights: `[O, KH, KW, C / groups]` integers minus their zero point.
        bias: `[O]`, with the contribution of the source's zero point subtracted (`folded_bias`), extended to whole
            blocks.
        epilogue: an epilogue whose arrays are extended to whole blocks.
        scheme: for example from `ranked`.
        parallel: true to divide tiles among threads.

    Raises:
        Declined: the source is packed.
    """
    if layer.source.packed:
        raise Declined("a grouped convolution reads blocks of channels")
    return _Grouped(isa, layer, grouping, weights, bias, epilogue, scheme, parallel).kernel()


class _Grouped:
    def __init__(
        self,
        isa: Isa,
        layer: Layer,
        grouping: Grouping,
        weights: Array,
        bias: Array,
        epilogue: AnyEpilogue,
        scheme: Scheme,
        parallel: bool,
    ) -> None:
        self.isa, self.layer, self.grouping, self.epilogue = isa, layer, grouping, epilogue
        self.scheme, self.tile, self.parallel = scheme, scheme.tile, parallel
        self.starts = scheme.starts(layer)
        self.constants: list[Array] = [*self._product_tables(weights), epilogue.requantization.started(bias)]
        self.constants += epilogue.constants
        self.constants = [array for array in self.constants if array.size]

    def _product_tables(self, weights: Array) -> tuple[Array, Array, Array, Array]:
        """Returns tables of all reduction steps of the layer, in the order in which the kernel executes them.

        A weight beyond the range of `dot` is split. Its remaining part is in an additional step, so no other loop is
        needed.

        Returns:
            first: int32 `[block tiles + 1]`, the index of each tile's first step.
            offsets: int32 `[steps]`, the byte offset of each step from the first byte of a window.
            weights: flat, in the order of `Isa.weights`.
            positions: int8 `[steps * 4 * lanes]`, for each byte of a vector, the channel in the block that it gets;
                empty for shared steps.
        """
        isa, excess = self.isa, Excess(weights, self.isa)
        first, offsets, listed, positions = [0], [], [], []
        for start in self.starts:
            filters, reads = self.scheme.reads(isa, self.grouping, start)
            at = self._offsets(reads)
            for part in (excess.weights, *excess.parts):
                arranged = reads.weights(self.grouping, filters, part)
                # All steps of the first part are kept, even if their weights are zero, so that the number of these
                # steps does not depend on values. Only the additional steps depend on values.
                kept = np.ones(at.shape, bool) if part is excess.weights else arranged.any(axis=(3, 4))
                offsets.append(at[kept])
                listed.append(arranged[kept].reshape(-1, self.tile.blocks, isa.lanes, isa.group))
                positions.append((np.maximum(reads.channels, 0) % isa.lanes)[np.nonzero(kept)[0]])
            first.append(sum(map(len, offsets)))
        return (
            np.array(first, np.int32),
            np.concatenate(offsets).astype(np.int32),
            isa.pack_weights(np.concatenate(listed)).reshape(-1),
            np.concatenate(positions).astype(np.int8).reshape(-1) if self.scheme.own else np.zeros(0, np.int8),
        )

    def _offsets(self, reads: Reads) -> Array:
        """Returns the byte offset of each step at each kernel tap from the first byte of a window,
        `[steps, KH, KW]`.
        """
        source, (kernel_h, kernel_w) = self.layer.source, self.layer.window.kernel
        dilation_h, dilation_w = self.layer.window.dilation
        down, right = np.arange(kernel_h) * dilation_h * source.row, np.arange(kernel_w) * dilation_w * source.pixel
        within = reads.starts[:, 0] * source.plane + reads.starts[:, 1]
        return within[:, None, None] + down[:, None] + right

    def kernel(self) -> Kernel:
        program, layer, tile = Program(), self.layer, self.tile
        self.program, self.lanes = program, Lanes(program, self.isa)
        self.source = program.parameter("source", "uint8", layer.source.size_bytes)
        residual = program.parameter("residual", "uint8", layer.residual.size_bytes) if layer.residual else None
        buffers = [
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
        ]
        destination = program.parameter("destination", self.epilogue.dtype, layer.destination.size_bytes)
        self.first, self.offsets, self.weights, *rest = buffers
        self.indices = rest.pop(0) if self.scheme.own else None
        self.bias, *constants = rest
        self.output = output_of(self.lanes, self.epilogue, layer, destination, residual, constants)

        height, width = layer.output
        columns, rows = -(-width // tile.columns), -(-height // tile.rows)
        tiles, blocks = rows * columns, layer.destination.blocks
        of_image = len(self.starts) * tiles
        with program.loop(layer.source.batch * of_image, "item", parallel=self.parallel) as item:
            image, rest_of = program.bind(item // of_image), item % of_image
            block_tile, at = program.bind(rest_of // tiles), rest_of % tiles
            block = program.bind(at_most(block_tile * tile.blocks, blocks - tile.blocks))
            row = program.bind(at_most(at // columns * tile.rows, height - tile.rows))
            column = program.bind(at_most(at % columns * tile.columns, width - tile.columns))
            self.output.fill_halo(image, block, blocks=tile.blocks, when=at == 0)
            self._tile(image, block_tile, block, row, column)
        facts = {
            "tile": f"{tile.rows}x{tile.columns} pixels, {plural(tile.blocks, 'block')}",
            "reads": f"{self.constants[1].size}, {'own' if self.scheme.own else 'shared'}",
        }
        return Kernel("grouped", program.function(), tuple(self.constants), self.output.size_bytes, facts)

    def _tile(self, image: Expr, block_tile: Expr, block: Expr, row: Expr, column: Expr) -> None:
        program = self.program
        accumulators = Accumulators(self.lanes, self.tile, self.bias, block)
        window = program.bind(self.layer.first_byte(image, row, column))
        start = program.bind(load(self.first, block_tile, 1))
        with program.loop(load(self.first, block_tile + 1, 1) - start, "read") as position:
            read = program.bind(start + position)
            self._accumulate(accumulators, program.bind(window + load(self.offsets, read, 1)), read)
        accumulators.store(self.output, image, row, column)

    def _accumulate(self, accumulators: Accumulators, at: Expr, read: Expr) -> None:
        """Adds the products of reduction step number `read`: channels of every pixel, by the weights of every block.

        `at` is the offset of the step's first byte for the first pixel.
        """
        isa, program, blocks = self.isa, self.program, range(self.tile.blocks)
        steps = self.tile.steps(self.layer)
        first = read * (len(blocks) * isa.weight_elements)
        weights = [isa.weights(program, self.weights, first + position * isa.weight_elements) for position in blocks]
        if self.indices is None:
            accumulators.add(isa.operands(program, self.source, at, steps), weights)
            return
        indices = isa.gather_indices(program, self.indices, read * isa.bytes)
        accumulators.add((isa.gather(program, self.source, at + step, indices) for step in steps), weights)
