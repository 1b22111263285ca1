"""Convolutions and dense layers with tile instructions (`Isa.matrix`), such as those of AMX.

An iteration of the parallel loop computes some hundred output pixels for a part of the output channels. It copies the
input pixels that it needs to a *panel* (`panel`), in the layout that tile registers need. Then it loops over tiles of
output blocks. For each tile of output blocks, it multiplies the whole panel by the weights of these blocks, stores the
accumulators in memory that fits the L1 or L2 cache, and applies the same epilogue as other convolutions. So weights are
loaded only once for each panel.
"""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, load
from service.compiler.kernels.simd.convolution.matrix_schemes import Scheme, panel_of, tile_rows
from service.compiler.kernels.simd.convolution.output import output_of
from service.compiler.kernels.simd.convolution.reduction import Excess
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array
from service.core.words import plural

_CONFIGURATION_BYTES = 64
_TOTAL_BYTES = 4
_LINE_BYTES = 64  # a cache line
_MOST_COLUMNS = 8  # the largest number of pixels to which the epilogue is applied at once
_WORKSPACE_BYTES = 1 << 18  # sizes are multiples of this, because the runtime caches recently used workspaces by size


def matrix(
    isa: Isa, layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, scheme: Scheme, *, parallel: bool
) -> Kernel:
    """Returns a kernel that computes the same as `conv.conv`, for an instruction set that multiplies tiles.

    Args:
        scheme: for example from `matrix_schemes.ranked`.
    """
    return _Matrix(isa, layer, weights, bias, epilogue, scheme, parallel).kernel()


class _Matrix:
    def __init__(
        self, isa: Isa, layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, scheme: Scheme, parallel: bool
    ) -> None:
        assert isa.matrix is not None
        self.isa, self.unit, self.layer, self.epilogue = isa, isa.matrix, layer, epilogue
        self.scheme, self.parallel = scheme, parallel
        self.panel = panel_of(isa.matrix, layer, scheme)
        self.rows = tile_rows(isa.matrix, self.panel.length, scheme.pixel_tiles)
        self.groups = -(-self.panel.length // (self.rows * scheme.pixel_tiles))
        self.blocks = layer.destination.blocks
        self.block_tiles = -(-self.blocks // scheme.blocks)
        self.constants: list[Array] = [*self._steps(weights), epilogue.requantization.started(bias)]
        self.constants += epilogue.constants

    def _steps(self, weights: Array) -> tuple[Array, Array, Array]:
        """Returns tables of all reduction steps of the layer, in the order in which the kernel executes them.

        A weight beyond int8 is split. Its remaining part is in an additional step, which only the block tiles with such
        a weight have.

        Returns:
            first: int32 `[block tiles + 1]`, the index of each block tile's first step.
            offsets: int32 `[steps]`, the byte offset of each step's input from the beginning of the panel.
            weights: flat int8, for each step, one weight tile for each of its blocks.
        """
        excess, offsets = Excess(weights, self.isa), self.panel.offsets
        parts = [self._tiled(part) for part in (excess.weights, *excess.parts)]
        first, listed, packed = [0], [], []
        for tile in range(self.block_tiles):
            for number, part in enumerate(parts):
                kept = np.ones(len(offsets), bool) if number == 0 else part[tile].any(axis=(1, 2, 3))
                listed.append(offsets[kept])
                packed.append(self.unit.pack_weights(part[tile][kept]).reshape(-1))
            first.append(sum(map(len, listed)))
        return np.array(first, np.int32), np.concatenate(listed), np.concatenate(packed)

    def _tiled(self, weights: Array) -> Array:
        """Returns the weights as `[block tiles, steps, blocks, lanes, depth]`. The last block tile overlaps the
        previous one.
        """
        lanes, deep = self.isa.lanes, self.scheme.blocks
        arranged = self.panel.arrange(weights)
        filled = np.zeros((self.blocks * lanes, *arranged.shape[1:]), arranged.dtype)
        filled[: len(arranged)] = arranged
        blocks = filled.reshape(self.blocks, lanes, *arranged.shape[1:])
        starts = [min(tile * deep, self.blocks - deep) for tile in range(self.block_tiles)]
        return np.stack([blocks[start : start + deep].transpose(2, 0, 1, 3) for start in starts])

    @property
    def _totals_bytes(self) -> int:
        return self.scheme.blocks * self.panel.length * self.isa.lanes * _TOTAL_BYTES

    @property
    def _workspace_bytes(self) -> int:
        needed = _CONFIGURATION_BYTES + self._totals_bytes + self.panel.size_bytes
        return max(_WORKSPACE_BYTES, 1 << (needed - 1).bit_length())

    def kernel(self) -> Kernel:
        program, layer, scheme = Program(), self.layer, self.scheme
        self.program, self.lanes = program, Lanes(program, self.isa)
        self.source = program.parameter("source", "uint8", layer.source.size_bytes)
        residual = program.parameter("residual", "uint8", layer.residual.size_bytes) if layer.residual else None
        buffers = [
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
        ]
        destination = program.parameter("destination", self.epilogue.dtype, layer.destination.size_bytes)
        self.first, self.offsets, self.weights, self.bias, *constants = buffers
        self.output = output_of(self.lanes, self.epilogue, layer, destination, residual, constants)
        height, width = layer.output
        down, across = -(-height // scheme.rows), -(-width // scheme.columns)
        panels = down * across
        with program.loop(layer.source.batch * scheme.shares * panels, "item", parallel=self.parallel) as item:
            image, rest = program.bind(item // (scheme.shares * panels)), item % (scheme.shares * panels)
            share, at = program.bind(rest // panels), program.bind(rest % panels)
            row = program.bind(at_most(at // across * scheme.rows, height - scheme.rows))
            column = program.bind(at_most(at % across * scheme.columns, width - scheme.columns))
            self._item(image, share, row, column, first=at == 0)
        facts = {
            "tile": f"{scheme.rows}x{scheme.columns} pixels, {plural(scheme.blocks, 'block')}",
            "tiles": f"{scheme.pixel_tiles}x{self.rows} pixels by {scheme.blocks}x{self.isa.lanes} channels",
            "excess_groups": len(self.constants[1]) - self.block_tiles * len(self.panel.offsets),
        }
        return Kernel("matrix", program.function(), tuple(self.constants), self.output.size_bytes, facts)

    def _item(self, image: Expr, share: Expr, row: Expr, column: Expr, *, first: Expr) -> None:
        program, deep = self.program, self.scheme.blocks
        memory = program.workspace(self._workspace_bytes)
        start = _CONFIGURATION_BYTES + self._totals_bytes
        self.panel.copy(program, self.source, program.bind(self.layer.first_byte(image, row, column)), memory, start)
        self.unit.configure(program, memory, 0, self.rows, range(*self._pixel_tiles))
        count = -(-self.block_tiles // self.scheme.shares)
        tile = program.bind(at_most(share * count, self.block_tiles - count))
        own = min(count * deep, self.blocks)
        self.output.fill_halo(image, program.bind(at_most(tile * deep, self.blocks - own)), blocks=own, when=first)
        with program.loop(count, "tile") as position:
            block_tile = program.bind(tile + position)
            self._multiply(memory, start, block_tile)
            self._finish(memory, image, program.bind(at_most(block_tile * deep, self.blocks - deep)), row, column)
        self.unit.release(program)

    @property
    def _pixel_tiles(self) -> tuple[int, int]:
        """The range of tile registers whose rows are pixels: first the accumulators, then the activations.

        The registers after the range contain weights.
        """
        return 0, self.scheme.pixel_tiles * self.scheme.blocks + self.scheme.activation_tiles

    def _multiply(self, memory: Buffer, start: int, block_tile: Expr) -> None:
        """Computes the accumulators of the whole panel for one block tile, and stores them in memory."""
        program, unit, wide, lanes = self.program, self.unit, self.scheme.pixel_tiles, self.isa.lanes
        begin = program.bind(load(self.first, block_tile, 1))
        steps = program.bind(load(self.first, block_tile + 1, 1) - begin)
        with program.loop(self.groups, "group") as group:
            pixel = program.bind(at_most(group * (wide * self.rows), self.panel.length - wide * self.rows))
            source = program.bind(pixel * self.panel.pixel_bytes + start)
            for total in range(wide * self.scheme.blocks):
                unit.zero(program, total)
            with program.loop(steps, "step") as step:
                number = program.bind(begin + step)
                self._step(memory, program.bind(source + load(self.offsets, number, 1)), number)
                self._prefetch(program.bind(begin + steps), program.bind(group * steps + step))
            for block in range(self.scheme.blocks):
                for tile in range(wide):
                    at = (pixel + (block * self.panel.length + tile * self.rows)) * (lanes * _TOTAL_BYTES)
                    to = program.bind(at + _CONFIGURATION_BYTES)
                    unit.store(program, tile * self.scheme.blocks + block, memory, to, lanes * _TOTAL_BYTES)

    def _prefetch(self, behind: Expr, step: Expr) -> None:
        """Prefetches a part of the next block tile's weights from memory, while the current one is multiplied.

        Args:
            behind: the index of the next block tile's first step.
            step: the number of the current step, counted through all groups of pixels.
        """
        lines = -(-self.scheme.blocks * self.unit.weight_bytes // (_LINE_BYTES * self.groups))
        size, position = lines * _LINE_BYTES, behind * (self.scheme.blocks * self.unit.weight_bytes)
        for line in range(lines):
            self.program.prefetch(self.weights, position + step * size + line * _LINE_BYTES)

    def _step(self, memory: Buffer, at: Expr, number: Expr) -> None:
        """Adds the products of one reduction step: `depth` bytes of each pixel of a group, by the weights of each
        channel.
        """
        program, unit, scheme = self.program, self.unit, self.scheme
        (_, weights), activations = self._pixel_tiles, scheme.pixel_tiles * scheme.blocks

        def load_weights(block: int) -> int:
            tile = weights + block % (unit.tiles - weights)
            position = (number * scheme.blocks + block) * unit.weight_bytes
            unit.load(program, tile, self.weights, position, unit.depth)
            return tile

        def load_pixels(position: int) -> int:
            tile = activations + position % scheme.activation_tiles
            unit.load(
                program, tile, memory, at + position * (self.rows * self.panel.pixel_bytes), self.panel.pixel_bytes
            )
            return tile

        if scheme.pixels_outside:
            held = [load_weights(block) for block in range(scheme.blocks)]
            for position in range(scheme.pixel_tiles):
                pixels = load_pixels(position)
                for block, tile in enumerate(held):
                    unit.multiply(program, position * scheme.blocks + block, pixels, tile)
            return
        kept = [load_pixels(position) for position in range(scheme.pixel_tiles)]
        for block in range(scheme.blocks):
            tile = load_weights(block)
            for position, pixels in enumerate(kept):
                unit.multiply(program, position * scheme.blocks + block, pixels, tile)

    def _finish(self, memory: Buffer, image: Expr, block: Expr, row: Expr, column: Expr) -> None:
        """Applies the epilogue to the accumulators of a panel, and stores the results."""
        program, lanes, panel = self.program, self.isa.lanes, self.panel
        rows, columns = finished_at_once(panel.rows, panel.columns)
        for index in range(self.scheme.blocks):
            own = program.bind(block + index)
            channels = self.output.channels(own)
            start = self.lanes.keep(load(self.bias, own * lanes, lanes))
            base = _CONFIGURATION_BYTES + index * panel.length * lanes * _TOTAL_BYTES
            with (
                program.loop(-(-panel.rows // rows), "line") as line,
                program.loop(-(-panel.columns // columns), "part") as part,
            ):
                down = program.bind(at_most(line * rows, panel.rows - rows))
                right = program.bind(at_most(part * columns, panel.columns - columns))
                at = program.bind((down * panel.pitch + right) * (lanes * _TOTAL_BYTES) + base)
                totals = [
                    self._total(memory, at + (below * panel.pitch + beside) * lanes * _TOTAL_BYTES) + start
                    for below in range(rows)
                    for beside in range(columns)
                ]
                kept = [self.lanes.keep(total) for total in totals]
                self.output.store_tile(kept, columns, channels, image, own, row + down, column + right)

    def _total(self, memory: Buffer, at: Expr) -> Expr:
        return bits(f"int32x{self.isa.lanes}", load(memory, at, self.isa.lanes * _TOTAL_BYTES))


def finished_at_once(rows: int, columns: int) -> tuple[int, int]:
    """Returns the number of rows and columns of a panel to which the epilogue is applied at once.

    The epilogue processes four pixels at a time. The result is chosen so that as few pixels as possible are processed
    twice.
    """
    if columns < PIXELS:
        return min(rows, -(-PIXELS // columns)), columns
    widths = range(PIXELS, min(_MOST_COLUMNS, columns) + 1)
    return 1, min(widths, key=lambda width: (-(-columns // width) * -(-width // PIXELS), -width))
