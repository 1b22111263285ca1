"""Convolutions and dense layers of 16-bit activations and 8-bit weights, with 64-bit sums, on contiguous tensors.

`Isa.dot_int16` multiplies pairs of 16-bit values and adds the two products to an accumulator. So two neighboring input
values under a kernel row are broadcast to all lanes, and each lane computes an output channel, as in `conv`. Tensors
are contiguous `[N, H, W, C]`. The input values under a kernel row are then contiguous, so no layout change is needed.

The 32-bit accumulators are added to 64-bit accumulators before they can overflow. The layer's weights determine when:
once at the end, after each kernel row, or after every 257 pairs and a single value (515 products of at most 2**15 * 127
each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layer import Window
from service.compiler.kernels.program import Expr, Program, Register, at_most, bits, load, shuffle, splat
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.expressions.rescaling import Reduced, Rescaling
from service.compiler.qnn.expressions.tensors import TensorOps
from service.core.models.arrays import Array
from service.core.words import plural

Shape = tuple[int, int, int, int]

_LARGEST = 1 << 15  # the largest magnitude of an activation
_SECTION = 257  # the largest number of pairs that cannot overflow 32-bit accumulators
_MOST_COLUMNS, _MOST_BLOCKS = 28, 8


@dataclass(frozen=True)
class Narrow:
    """`Reduced` for accumulators that fit 32 bits, on vectors of int32."""

    wide: Reduced

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.wide.multipliers.astype(np.int32), self.wide.counts.astype(np.int32)

    def scale(self, lanes: Lanes, accumulator: Expr, channels: Sequence[Expr]) -> Expr:
        """Converts int32 accumulators. Results beyond 32 bits are truncated, as in the reference."""
        return lanes.scale_once(lanes.keep(accumulator), *channels, away=False)


@dataclass(frozen=True)
class Words:
    """The geometry of a layer. `source` includes the padding. The pixels of a 1x1 convolution with stride 1 form one
    row.
    """

    source: Shape
    destination: Shape
    window: Window

    @property
    def positions(self) -> tuple[int, int]:
        """The numbers of iterations over kernel rows and columns.

        If the input values under a kernel row are contiguous, one iteration processes the whole row.
        """
        rows, columns = self.window.kernel
        return (rows, 1) if self.window.dilation[1] == 1 else (rows, columns)

    @property
    def run(self) -> int:
        """The number of input values that one iteration over `positions` processes."""
        rows, columns = self.window.kernel
        return rows * columns * self.source[3] // (self.positions[0] * self.positions[1])


def layer(
    isa: Isa,
    words: Words,
    weights: Array,
    bias: Array,
    rescaling: Rescaling,
    bounds: tuple[int, int],
    tile: tuple[int, int],
    *,
    parallel: bool,
) -> Kernel:
    """Returns the kernel of a layer and its requantization, on `[N * H * W * C] int16` tensors without slack.

    Args:
        weights: `[O, KH, KW, C]`, 8-bit values.
        bias: `[O] int64`.
        bounds: the bounds of the output's storage type.
        tile: the numbers of pixels and of channel blocks whose accumulators are in registers.
        parallel: true to divide tiles among threads.
    """
    return _Layer(isa, words, weights, bias, rescaling, bounds, tile, parallel).kernel()


def choose(isa: Isa, words: Words) -> tuple[int, int]:
    """Returns the tile with the fewest estimated cycles."""
    _, _, width, channels = words.destination
    candidates = [
        (columns, blocks)
        for columns in range(1, min(width, _MOST_COLUMNS) + 1)
        for blocks in range(1, min(-(-channels // isa.lanes), _MOST_BLOCKS) + 1)
        if columns * blocks + blocks + 1 <= isa.registers
    ]
    return min(candidates, key=lambda tile: cycles(isa, words, tile))


def cycles(isa: Isa, words: Words, tile: tuple[int, int]) -> float:
    """Estimates the cycles of the whole layer on one core, like `tiles.cycles`."""
    (n, height, width, channels), (columns, blocks), rate = words.destination, tile, isa.rates
    vectors, (rows, taps) = -(-channels // isa.lanes), words.positions
    tiles = n * height * -(-width // columns) * -(-vectors // blocks)
    pairs = rows * taps * -(-words.run // 2)
    far = pairs * blocks * isa.bytes > rate.near_bytes
    work, loads = columns * blocks * rate.dot / isa.weight_vectors, (columns + blocks * (1 + far)) * rate.load
    step = max(work, loads, rate.latency) + rate.overlap * min(work, loads)
    return tiles * (pairs * step + columns * blocks * rate.epilogue.int16 + rate.tile)


class _Layer:
    def __init__(
        self,
        isa: Isa,
        words: Words,
        weights: Array,
        bias: Array,
        rescaling: Rescaling,
        bounds: tuple[int, int],
        tile: tuple[int, int],
        parallel: bool,
    ) -> None:
        self.isa, self.words, self.parallel = isa, words, parallel
        self.rescaling: Rescaling | Narrow = rescaling
        self.columns, self.blocks = tile
        self.channels = words.destination[3]
        # The first channel of each block. If there are several blocks, the last one overlaps the previous one.
        last = max(self.channels - isa.lanes, 0)
        self.starts = [min(start, last) for start in range(0, self.channels, isa.lanes)]
        self.block_tiles = -(-len(self.starts) // self.blocks)
        self.pairs, self.single = divmod(words.run, 2)
        self.flush = _flush(weights, words)
        if isinstance(rescaling, Reduced) and self.flush == "at the end" and _fit(weights, bias):
            self.flush, self.rescaling = "never", Narrow(rescaling)
            bias = bias.astype(np.int32)
        self.constants = [
            self._packed(weights),
            *(self._by_block(values) for values in (bias, *self.rescaling.arrays)),
            np.array(bounds, np.int32),
        ]

    def _places(self) -> Array:
        """Returns the number of each block, `[block tiles, blocks]`. The last tile overlaps the previous one."""
        firsts = [min(tile * self.blocks, len(self.starts) - self.blocks) for tile in range(self.block_tiles)]
        return np.array(firsts)[:, None] + np.arange(self.blocks)

    def _by_block(self, values: Array) -> Array:
        """Converts one value for each output channel, `[O]`, to `[blocks * lanes]`."""
        filled = np.pad(values, (0, max(self.isa.lanes - self.channels, 0)), mode="edge")
        return np.concatenate([filled[start : start + self.isa.lanes] for start in self.starts])

    def _packed(self, weights: Array) -> Array:
        """Returns the weights in the order of loading: tile, position, pair, block, lane, 2."""
        rows, taps = self.words.positions
        lines = weights.reshape(self.channels, rows * taps, self.words.run)
        filled = np.zeros((max(self.channels, self.isa.lanes), rows * taps, 2 * (self.pairs + self.single)), np.int16)
        filled[: self.channels, :, : self.words.run] = lines
        blocks = np.stack([filled[start : start + self.isa.lanes] for start in self.starts])[self._places()]
        paired = blocks.reshape(*blocks.shape[:4], -1, 2)  # axes: tile, block, lane, position, pair, 2
        return np.ascontiguousarray(paired.transpose(0, 3, 4, 1, 2, 5)).reshape(-1)

    def kernel(self) -> Kernel:
        program = self.program = Program()
        sizes = [int(np.prod(shape)) for shape in (self.words.source, self.words.destination)]
        self.source = program.parameter("source", "int16", sizes[0])
        self.buffers = [
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
        ]
        self.destination = program.parameter("destination", "int16", sizes[1])
        n, height, width, _ = self.words.destination
        columns = -(-width // self.columns)
        with program.loop(self.block_tiles * n * height * columns, "item", parallel=self.parallel) as item:
            block_tile, at = program.bind(item // (n * height * columns)), item % (n * height * columns)
            line = program.bind(at // columns)  # the number of the row among the rows of all images
            column = program.bind(at_most(at % columns * self.columns, width - self.columns))
            self._tile(block_tile, line, column)
        facts = {"tile": f"1x{self.columns} pixels, {plural(self.blocks, 'block')}", "widened": self.flush}
        return Kernel("int16", program.function(), tuple(self.constants), 2 * sizes[1], facts)

    # --- accumulators ---

    def _tile(self, block_tile: Expr, line: Expr, column: Expr) -> None:
        program, lanes = self.program, self.isa.lanes
        self.accumulators = [program.register("int32", lanes) for _ in range(self.columns * self.blocks)]
        self.wide_accumulators: list[tuple[Register, Register]] = []
        self._clear()
        if self.flush in ("each row", "each section"):
            self.wide_accumulators = [self._new_wide_accumulator() for _ in self.accumulators]
        window = self._window(line, column)
        rows, taps = self.words.positions
        with program.loop(rows, "kh") as kh, program.loop(taps, "kw") as kw:
            position = (block_tile * rows + kh) * taps + kw
            self._position(window + self._tap(kh, kw), position * ((self.pairs + self.single) * self._step))
            if self.flush == "each row":
                self._widen()
        self._store(block_tile, line, column)

    def _position(self, start: Expr, weights: Expr) -> None:
        section = _SECTION if self.flush == "each section" else self.pairs
        for first, count, length in _sections(self.pairs, section):
            with self.program.loop(count, "section") as position:
                begin = first + position * length
                with self.program.loop(length, "pair") as pair:
                    self._step_over(start + (begin + pair) * 2, weights + (begin + pair) * self._step, 2)
                if self.flush == "each section":
                    self._widen()
        if self.single:
            self._step_over(start + 2 * self.pairs, weights + self.pairs * self._step, 1)
            if self.flush == "each section":
                self._widen()

    def _step_over(self, start: Expr, weights: Expr, values: int) -> None:
        """Adds the products of one reduction step: a pair (or a single value) of every pixel, by the weights of every
        block.
        """
        program, isa, pair = self.program, self.isa, f"int16x{2 * self.isa.lanes}"
        factors = [
            program.bind(load(self.buffers[0], weights + block * 2 * isa.lanes, 2 * isa.lanes), pair)
            for block in range(self.blocks)
        ]
        for column in range(self.columns):
            at = start + column * (self.words.window.strides[1] * self.words.source[3])
            loaded = load(self.source, at, values)
            low = tirx.const(0xFFFF, "int32")
            both = bits("int32", loaded) if values == 2 else tirx.bitwise_and(tirx.Cast("int32", loaded), low)
            operand = program.bind(bits(pair, splat(both, isa.lanes)), pair)
            for block, factor in enumerate(factors):
                accumulator = self.accumulators[column * self.blocks + block]
                accumulator.value = isa.dot_int16(accumulator.value, operand, factor)

    @property
    def _step(self) -> int:
        """The number of weight elements for one pair of input values."""
        return self.blocks * 2 * self.isa.lanes

    def _window(self, line: Expr, column: Expr) -> Expr:
        """Returns the offset of the window of the tile's first output pixel."""
        (_, height, width, channels), (down, right) = self.words.source, self.words.window.strides
        rows = self.words.destination[1]
        row = line // rows * height + line % rows * down
        return self.program.bind((row * width + column * right) * channels)

    def _tap(self, row: Expr, column: Expr) -> Expr:
        (_, _, width, channels), (down, right) = self.words.source, self.words.window.dilation
        return row * (down * width * channels) + column * (right * channels)

    def _new_wide_accumulator(self) -> tuple[Register, Register]:
        half = self.isa.lanes // 2
        registers = self.program.register("int64", half), self.program.register("int64", half)
        for register in registers:
            register.value = splat(tirx.const(0, "int64"), half)
        return registers

    def _clear(self) -> None:
        for register in self.accumulators:
            register.value = splat(tirx.const(0, "int32"), self.isa.lanes)

    def _widen(self) -> None:
        """Adds the 32-bit accumulators to the 64-bit accumulators, and sets the 32-bit accumulators to 0."""
        for register, halves in zip(self.accumulators, self.wide_accumulators, strict=True):
            for half, wide in enumerate(halves):
                wide.value = wide.value + self._half(register, half)
        self._clear()

    def _half(self, register: Register, half: int) -> Expr:
        lanes = self.isa.lanes // 2
        return tirx.Cast(f"int64x{lanes}", shuffle(register.value, range(half * lanes, (half + 1) * lanes)))

    # --- epilogue ---

    def _store(self, block_tile: Expr, line: Expr, column: Expr) -> None:
        """Stores the tile: whole vectors of 32-bit accumulators, or half vectors of 64-bit accumulators."""
        program, lanes = self.program, self.isa.lanes
        size = lanes if self.flush == "never" else lanes // 2
        width = self.words.destination[2]
        first = program.bind(at_most(block_tile * self.blocks, len(self.starts) - self.blocks))
        for block in range(self.blocks):
            start = program.bind(at_most((first + block) * lanes, max(self.channels - lanes, 0)))
            for part in range(lanes // size):
                at = program.bind((first + block) * lanes + part * size)
                bias, *channels = (
                    program.bind(load(buffer, at, size), f"{array.dtype}x{size}")
                    for buffer, array in zip(self.buffers[1:-1], self.constants[1:-1], strict=True)
                )
                for pixel in range(self.columns):
                    accumulator = self._accumulator(pixel * self.blocks + block, part) + bias
                    value = self._clamped(self._rescaled(accumulator, channels, size), size)
                    to = (line * width + column + pixel) * self.channels + start + part * size
                    channels_left = min(size, self.channels - part * size)
                    program.store_first(self.destination, program.bind(to), value, size, channels_left)

    def _rescaled(self, accumulator: Expr, channels: Sequence[Expr], size: int) -> Expr:
        if isinstance(self.rescaling, Narrow):
            return self.rescaling.scale(Lanes(self.program, self.isa), accumulator, channels)
        return self.rescaling.express(TensorOps(size), accumulator, channels)

    def _accumulator(self, index: int, part: int) -> Expr:
        if self.flush == "never":
            return self.accumulators[index].value
        accumulator = self._half(self.accumulators[index], part)
        return self.wide_accumulators[index][part].value + accumulator if self.wide_accumulators else accumulator

    def _clamped(self, value: Expr, size: int) -> Expr:
        low, high = (splat(load(self.buffers[-1], index, 1), size) for index in range(2))
        held = tirx.max(tirx.min(value, high), low)
        return self.program.bind(tirx.Cast(f"int16x{size}", held), f"int16x{size}")


def _fit(weights: Array, bias: Array) -> bool:
    """Returns true if accumulators with their bias always fit 32 bits."""
    magnitudes = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(axis=1) * _LARGEST
    return bool((magnitudes + np.abs(bias.astype(np.float64))).max() < 1 << 31)


def _flush(weights: Array, words: Words) -> str:
    """Returns how often 32-bit accumulators must be added to 64-bit accumulators, so that they never overflow."""
    rows, taps = words.positions
    magnitudes = np.abs(weights.astype(np.int64)).reshape(len(weights), rows * taps, -1).sum(axis=2) * _LARGEST
    if magnitudes.sum(axis=1).max() < 1 << 31:
        return "at the end"
    return "each row" if magnitudes.max() < 1 << 31 else "each section"


def _sections(pairs: int, longest: int) -> list[tuple[int, int, int]]:
    """Divides `pairs` into sections of at most `longest` pairs.

    Returns (first pair, number of equal sections, pairs in each) for each size of section.
    """
    if pairs == 0:
        return []
    whole, rest = divmod(pairs, longest)
    sections = [(0, whole, longest)] if whole else []
    return [*sections, (whole * longest, 1, rest)] if rest else sections
