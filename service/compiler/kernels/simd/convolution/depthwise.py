"""Depthwise convolution: each channel has its own filter. Each lane of a vector computes one channel.

One load reads four pixels of a block of channels. After a transposition, each lane contains the four pixels of its
channel, and one `dot` multiplies them by the weights of four kernel taps. If a kernel row has fewer than four taps, one
vector of pixels is used for several neighboring outputs: multiplied by (w0, w1, w2, 0) for the first output, by (0, w0,
w1, w2) for the next. A vector is also used for several kernel rows. A tile is a few rows of the output. The results of
an output row are stored as soon as its last kernel row is added, so the accumulators of only a few rows are in
registers at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import AnyEpilogue
from service.compiler.kernels.arithmetic.taps import Taps
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer
from service.compiler.kernels.program import Buffer, Expr, Program, Register, at_most, load
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.convolution.output import output_of
from service.compiler.kernels.simd.convolution.reduction import Excess
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array
from service.core.words import plural

_MOST_PRODUCTS = 512  # the largest number of `dot` in an unrolled tile; with more, the code loops over kernel rows
_MOST_ROWS, _MOST_COLUMNS = 8, 8

# The weights of one kernel row: maps each shift (`Taps`) to an operand of `Isa.dot`.
Weights = dict[int, tuple[Expr, ...]]
# Takes the offset of the first window of a row, and returns the row's accumulators.
Start = Callable[[Expr], list[Register]]
# Yields (row, accumulators) for each row of a tile, as soon as the row is complete.
Rows = Iterator[tuple[int, list[Register]]]


def depthwise(
    isa: Isa, layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, tile: Tile, *, parallel: bool
) -> Kernel:
    """Returns the kernel of a depthwise convolution, its requantization, and a residual addition if there is one.

    Args:
        weights: `[C, KH, KW]` integers minus their zero point.
        bias: `[C]`, with the contribution of the source's zero point subtracted (`folded_bias`), extended to whole
            blocks.
        epilogue: an epilogue whose arrays are extended to whole blocks.
        tile: a tile with one block, for example from `ranked`.
        parallel: true to divide bands of rows among threads.

    Raises:
        Declined: the source is packed.
    """
    if layer.source.packed:
        raise Declined("a depthwise convolution reads blocks of channels")
    return _Depthwise(isa, layer, weights, bias, epilogue, tile, parallel).kernel()


def ranked(isa: Isa, layer: Layer) -> list[Tile]:
    """Returns the candidate tiles, the one with the fewest vector instructions (`DepthwiseRates`) first."""
    height, width = layer.destination.height, layer.destination.width
    columns = range(min(PIXELS, width), min(_MOST_COLUMNS, width) + 1)
    rows = range(1, min(_MOST_ROWS, height) + 1)
    tiles = [Tile(row, column, 1) for column in columns for row in rows]
    unrolled = [tile for tile in tiles if _products(layer, tile) <= _MOST_PRODUCTS]
    return sorted(unrolled or tiles[:1], key=lambda tile: _work(isa, layer, tile))


def _products(layer: Layer, tile: Tile) -> int:
    return tile.rows * layer.window.kernel[0] * Taps(layer.window, tile.columns).products


def _work(isa: Isa, layer: Layer, tile: Tile) -> float:
    taps, kernel_h = Taps(layer.window, tile.columns), layer.window.kernel[0]
    rates = isa.rates.depthwise
    vectors = len(_lines(layer, tile)) * len(taps.vectors)
    stored = rates.requantize * tile.columns + rates.pack * -(-tile.columns // PIXELS)
    work = vectors * rates.transpose + tile.rows * (kernel_h * taps.products * rates.dot + stored) + rates.tile
    span = (kernel_h - 1) * layer.window.dilation[0] + 1
    held = min(tile.rows, -(-span // layer.window.strides[0])) * tile.columns
    crowded = 1 + rates.crowding * max(0, held - rates.free_accumulators)
    height, width = layer.destination.height, layer.destination.width
    return work * crowded * -(-height // tile.rows) * -(-width // tile.columns)


def _lines(layer: Layer, tile: Tile) -> dict[int, list[tuple[int, int]]]:
    """Maps each source row under a tile, in order, to the pairs (output row, kernel row) that read it."""
    (kernel_h, _), (stride, _), (dilation, _) = layer.window.kernel, layer.window.strides, layer.window.dilation
    lines: dict[int, list[tuple[int, int]]] = {}
    for row in range(tile.rows):
        for kernel_row in range(kernel_h):
            lines.setdefault(row * stride + kernel_row * dilation, []).append((row, kernel_row))
    return dict(sorted(lines.items()))


class _Depthwise:
    def __init__(
        self, isa: Isa, layer: Layer, weights: Array, bias: Array, epilogue: AnyEpilogue, tile: Tile, parallel: bool
    ) -> None:
        self.isa, self.layer, self.epilogue, self.tile, self.parallel = isa, layer, epilogue, tile, parallel
        self.taps, self.lines = Taps(layer.window, tile.columns), _lines(layer, tile)
        self.kernel_rows = layer.window.kernel[0]
        self.looped = _products(layer, tile) > _MOST_PRODUCTS
        self.excess = Excess(weights, isa)
        self.constants: list[Array] = [
            self._packed(self._arranged(self.excess.weights)),
            epilogue.requantization.started(bias),
        ]
        self.constants += [*epilogue.constants, isa.transpose_indices]
        if self.excess:
            self.constants += self._rests()

    def _arranged(self, weights: Array) -> Array:
        """Converts weights `[C, KH, KW]` to `[blocks, KH, shifts, lanes, 4]`, extended with zeros."""
        blocks, lanes = self.layer.destination.blocks, self.isa.lanes
        filled = np.zeros((blocks * lanes, *weights.shape[1:]), weights.dtype)
        filled[: len(weights)] = weights
        return self.taps.arrange(filled.reshape(blocks, lanes, *weights.shape[1:])).transpose(0, 2, 3, 1, 4)

    def _packed(self, weights: Array) -> Array:
        return self.isa.pack_weights(weights).reshape(-1)

    def _rests(self) -> list[Array]:
        """Returns the parts of weights beyond the range of `dot`, as additional kernel rows of the few blocks that have
        any.

        Returns:
            `[blocks + 1] int32`, the index of each block's first additional row; `[rows] int32`, the byte offset of
            each additional row from the first row of a window; and the weights of these rows.
        """
        parts = [self._arranged(part) for part in self.excess.parts]
        first, offsets, weights = [0], [], []
        for block in range(self.layer.destination.blocks):
            for part in (part[block] for part in parts):
                for (kernel_row,) in np.argwhere(part.any(axis=(1, 2, 3))).tolist():
                    offsets.append(kernel_row * self._below)
                    weights.append(part[kernel_row])
            first.append(len(offsets))
        return [np.array(first, np.int32), np.array(offsets, np.int32), self._packed(np.array(weights))]

    def kernel(self) -> Kernel:
        program, layer, tile = Program(), self.layer, self.tile
        self.program, self.lanes = program, Lanes(program, self.isa)
        self.source = program.parameter("source", "uint8", layer.source.size_bytes)
        residual = program.parameter("residual", "uint8", layer.residual.size_bytes) if layer.residual else None
        self.buffers = [
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
        ]
        destination = program.parameter("destination", self.epilogue.dtype, layer.destination.size_bytes)
        *constants, self.transpose_indices = self.buffers[2 : 3 + len(self.epilogue.constants)]
        self.output = output_of(self.lanes, self.epilogue, layer, destination, residual, constants)
        blocks, bands = layer.destination.blocks, -(-layer.destination.height // tile.rows)
        with program.loop(layer.source.batch * blocks * bands, "item", parallel=self.parallel) as item:
            image, rest = program.bind(item // (blocks * bands)), item % (blocks * bands)
            block, band = program.bind(rest // bands), rest % bands
            self.output.fill_halo(image, block, when=band == 0)
            self._band(image, block, program.bind(at_most(band * tile.rows, layer.destination.height - tile.rows)))
        facts = {
            "tile": f"{tile.rows}x{tile.columns} pixels",
            "products": f"{plural(self.taps.products, 'product')} of {plural(len(self.taps.vectors), 'vector')} "
            "for each kernel row",
            "excess_rows": len(self.constants[-2]) if self.excess else 0,
        }
        return Kernel("depthwise", program.function(), tuple(self.constants), self.output.size_bytes, facts)

    def _band(self, image: Expr, block: Expr, row: Expr) -> None:
        """Computes `tile.rows` rows of one block of the output, over the whole width of the image."""
        program, isa, width = self.program, self.isa, self.layer.destination.width
        bias = self.lanes.keep(load(self.buffers[1], block * isa.lanes, isa.lanes))
        program.align_stack(bias, "int32", isa.lanes)
        channels = self.output.channels(block)
        first = block * self.kernel_rows
        unrolled = range(0 if self.looped else self.kernel_rows)
        weights = [self._weights(self.buffers[0], first + kernel_row) for kernel_row in unrolled]
        with program.loop(-(-width // self.tile.columns), "tile") as at:
            column = program.bind(at_most(at * self.tile.columns, width - self.tile.columns))
            window = program.bind(self._window(image, block, row, column))

            def start(line: Expr) -> list[Register]:
                return self._start(line, block, bias)

            rows = self._looped(window, start, first) if self.looped else self._unrolled(window, start, weights)
            for position, accumulators in rows:
                values = [accumulator.value for accumulator in accumulators]
                self.output.store_tile(values, len(values), channels, image, block, row + position, column)

    def _window(self, image: Expr, block: Expr, row: Expr, column: Expr) -> Expr:
        """Returns the byte offset of an output pixel's window."""
        source, window = self.layer.source, self.layer.window
        (stride_h, stride_w), (top, left) = window.strides, window.padding
        start = source.origin - top * source.row - left * source.pixel
        plane = image * source.image + block * source.plane
        return plane + row * (stride_h * source.row) + column * (stride_w * source.pixel) + start

    def _unrolled(self, window: Expr, start: Start, weights: list[Weights]) -> Rows:
        """Computes a tile without loops. Each source row is loaded once for all output rows that read it."""
        accumulators: dict[int, list[Register]] = {}
        for line, uses in self.lines.items():
            for row, kernel_row in uses:
                if kernel_row == 0:
                    accumulators[row] = start(window + row * self._down)
            at = window + line * self.layer.source.row
            self._accumulate(at, [(accumulators[row], weights[kernel_row]) for row, kernel_row in uses])
            for row, kernel_row in uses:
                if kernel_row == self.kernel_rows - 1:
                    yield row, accumulators.pop(row)

    def _looped(self, window: Expr, start: Start, first: Expr) -> Rows:
        """Computes one row of the tile after another, with a loop over kernel rows.

        `first` is the index of the block's first kernel row.
        """
        for row in range(self.tile.rows):
            line = window + row * self._down
            accumulators = start(line)
            with self.program.loop(self.kernel_rows, "kh") as kernel_row:
                weights = self._weights(self.buffers[0], first + kernel_row)
                self._accumulate(line + kernel_row * self._below, [(accumulators, weights)])
            yield row, accumulators

    @property
    def _down(self) -> int:
        """The distance in bytes from an output pixel's window to the window of the pixel below."""
        return self.layer.window.strides[0] * self.layer.source.row

    @property
    def _below(self) -> int:
        """The distance in bytes from one row of a window to the next."""
        return self.layer.window.dilation[0] * self.layer.source.row

    def _start(self, window: Expr, block: Expr, bias: Expr) -> list[Register]:
        """Initializes the accumulators of one output row with the bias, and adds the products of additional kernel
        rows."""
        program = self.program
        accumulators = [program.register("int32", self.isa.lanes) for _ in range(self.tile.columns)]
        for accumulator in accumulators:
            accumulator.value = bias
        if self.excess:
            first, offsets, rests = self.buffers[-3:]
            start = program.bind(load(first, block, 1))
            with program.loop(load(first, block + 1, 1) - start, "excess") as position:
                rest = program.bind(start + position)
                self._accumulate(window + load(offsets, rest, 1), [(accumulators, self._weights(rests, rest))])
        return accumulators

    def _weights(self, buffer: Buffer, kernel_row: Expr) -> Weights:
        elements = self.isa.weight_elements
        first = kernel_row * (len(self.taps.shifts) * elements)
        return {
            shift: self.isa.weights(self.program, buffer, first + index * elements)
            for index, shift in enumerate(self.taps.shifts)
        }

    def _accumulate(self, line: Expr, uses: list[tuple[list[Register], Weights]]) -> None:
        """Adds the products of one source row.

        Args:
            line: the offset of the byte under the first kernel tap of the tile's first output.
            uses: for each output row that reads the source row, (its accumulators, the weights of the kernel row).
        """
        program, isa, line = self.program, self.isa, self.program.bind(line)
        for vector in self.taps.vectors:
            pixels = load(self.source, line + vector.position * self.layer.source.pixel, isa.bytes)
            group = isa.transposed(program, pixels, load(self.transpose_indices, 0, isa.lanes))
            for accumulators, weights in uses:
                for column, shift in vector.uses:
                    total = accumulators[column]
                    total.value = isa.dot(total.value, group, weights[shift], self.taps.places(shift))
