"""The choice of tiles of convolutions on cards: their cost model.

Cycles of a multiprocessor, from what a card can do in one (`cards`). A block of threads computes a tile; blocks run in
waves. What counts is that the order of the candidates is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from math import ceil

from service.compiler.kernels.cuda.cards import Card
from service.compiler.kernels.layer import Layer, Window

STEP_BYTES = 32  # of a read
_WARP = 32
_MOST_THREADS_OF_A_BLOCK = 512
_REGISTERS = 65536
_OTHER_REGISTERS = 64  # of a thread, besides its sums and operands
# Fitted to what a card of 9.0 took for the convolutions of ResNet-50 at batch 64: the tiles that are chosen take 4 %
# longer than the best ones, by the geometric mean (`benchmarks/GPU.md`).
_REACHED = (0.7, 0.5, 0.7)  # by each unit, of the products that a multiprocessor can add in a cycle
_START_CYCLES = 2000  # of a tile: its windows, its first reads, its output on its way
_THREAD_CYCLES = 2  # of a multiprocessor, for what a thread computes of a tile besides
_COMBINING_CYCLES = 300  # of the sums of a tile's teams
_LARGEST_SLICED = 64  # pixels or filters of a tile whose reads are shared: larger ones keep a multiprocessor busy
_LATENCY_CYCLES = 800  # of a read from the second level of cache, when all multiprocessors read
_MOST_NEAR_BYTES = 64  # that a multiprocessor gets from there in a cycle, when few others read
_OVERLAPPING = 0.5  # of the bytes of pixels whose windows overlap: what comes from there
_OUTPUT_CYCLES, _ADDING = 0.08, 3  # of a byte, when all threads of a multiprocessor are busy; where a residual is added
_BUSY_THREADS = 512  # what it takes for that
_LEAST_OUTPUT = 0.5  # of what its products take, so that a block computes tiles one after the other
_CHUNK_BYTES = 16  # of a copy
_FREE_COPIES = 8  # of a thread between two barriers, whose addresses take no further registers
_ALIGNMENT = 256  # bytes, of stages


class Unit(IntEnum):
    """What multiplies, and the type that does it (`source/tiles.cuh`)."""

    DOT = 0
    MATRIX = 1
    GROUP = 2

    @property
    def instruction(self) -> str:
        return ("dp4a", "mma", "wgmma")[self]

    @property
    def threads(self) -> int:
        """That own a part of the tile together."""
        return (1, _WARP, 4 * _WARP)[self]

    def macs(self, card: Card) -> int:
        """Of a multiprocessor, in a cycle; 0: the card has no such unit."""
        return (card.dot_macs, card.matrix_macs, card.group_macs)[self]


@dataclass(frozen=True)
class CardTile:
    """What a block of threads computes.

    Attributes:
        rows: pixels.
        columns: filters.
        own_rows, own_columns: of a thread, by `dp4a`; of a warp, by `mma`; of four, by `wgmma`.
        steps: reads that are multiplied between two barriers.
        stages: how many such groups of reads are in shared memory.
        slices: teams of threads that share the reads of a tile.
        unit: what multiplies.
    """

    rows: int
    columns: int
    own_rows: int
    own_columns: int
    steps: int
    stages: int
    slices: int
    unit: Unit

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, astuple(self)))

    @staticmethod
    def of(numbers: tuple[int, ...]) -> CardTile:
        rows, columns, own_rows, own_columns, steps, stages, slices, unit = numbers
        return CardTile(rows, columns, own_rows, own_columns, steps, stages, slices, Unit(unit))

    @property
    def threads(self) -> int:
        """Of a block."""
        owners = self.rows // self.own_rows * (self.columns // self.own_columns)
        return self.slices * owners * self.unit.threads

    @property
    def together(self) -> int:
        """Reads that a block multiplies between two barriers."""
        return self.steps * self.slices

    @property
    def ahead(self) -> int:
        """How many groups of reads are on their way while one is multiplied; as `Convolution` counts them."""
        return self.stages - 1 - (self.unit is Unit.GROUP)

    @property
    def products(self) -> str:
        """The type that multiplies (`source/tiles.cuh`)."""
        sizes = [self.rows, self.columns]
        if self.unit is not Unit.GROUP:
            sizes += [self.own_rows, self.own_columns]
        return f"octet::{self.unit.name.capitalize()}Products<{', '.join(map(str, sizes))}>"

    def shared_bytes(self, reads: int) -> int:
        """Of a block whose tiles have at most so many reads; as `Convolution` divides it."""
        offsets = -(-reads * 4 // _ALIGNMENT) * _ALIGNMENT
        stages = self.stages * self.together * (self.rows + self.columns) * STEP_BYTES
        output = (self.slices - 1) * self.rows * self.columns * 4 + self.rows * (self.columns + 16)
        return offsets + (stages + output if self.stages > 2 else max(stages, output))

    @property
    def registers(self) -> int:
        """Of a thread, estimated. Where the compiler may, it reads more of dp4a's operands ahead."""
        if self.unit is not Unit.DOT:
            sums = self.own_rows * self.own_columns // self.unit.threads
            operands = (self.own_rows + self.own_columns) // 4 if self.unit is Unit.MATRIX else 0
            copies = (self.rows + self.columns) * self.together * STEP_BYTES // (_CHUNK_BYTES * self.threads)
            return sums + operands + _OTHER_REGISTERS + 2 * max(0, copies - _FREE_COPIES)
        return 2 * self.own_rows * self.own_columns + 4 * (self.own_rows + self.own_columns) + _OTHER_REGISTERS

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor's registers hold: the compiler is told to keep to that."""
        return max(1, _REGISTERS // (self.registers * self.threads))


# Rows and columns of a tile, and of what owns a part of it.
_OF_GROUPS = (
    *((128, 256, 64, 256), (256, 128, 64, 128), (128, 128, 64, 128), (128, 64, 64, 64), (64, 128, 64, 128)),
    *((64, 64, 64, 64), (64, 32, 64, 32)),
)
_OF_WARPS = (
    *((128, 256, 64, 64), (128, 128, 64, 64), (128, 128, 64, 32), (128, 64, 64, 32), (64, 128, 32, 64)),
    *((64, 64, 32, 32), (128, 32, 32, 32)),
    *((64, 32, 32, 16), (32, 64, 16, 32), (32, 32, 16, 16)),
)
_OF_THREADS = ((128, 128, 8, 8), (128, 64, 8, 8), (64, 64, 8, 4), (32, 64, 4, 4), (64, 32, 4, 4), (32, 32, 4, 2))
_SIZES = {Unit.GROUP: _OF_GROUPS, Unit.MATRIX: _OF_WARPS, Unit.DOT: _OF_THREADS}


def promising(card: Card) -> list[Unit]:
    """Those that are worth a trial: tensor cores, where it has such."""
    return [unit for unit in (Unit.GROUP, Unit.MATRIX) if unit.macs(card)] or [Unit.DOT]


def ranked(card: Card, layer: Layer, reads: int, units: Sequence[Unit] = ()) -> list[CardTile]:
    """The tiles that fit `card`, the fastest first.

    Args:
        reads: of a tile of filters, about.
        units: that may multiply; none: those that are worth a trial.
    """
    stages = (4, 3, 8) if card.copies_ahead else (2,)
    steps = (2, 4) if card.copies_ahead else (2,)  # what is fetched waits in registers
    candidates = [
        CardTile(*sizes, step, stage, slices, unit)
        for unit in units or promising(card)
        for sizes in _SIZES[unit]
        for step in steps
        for stage in stages
        for slices in ((1, 2, 4) if max(sizes[:2]) <= _LARGEST_SLICED else (1,))
    ]
    most = reads + max(tile.together for tile in candidates)
    fitting = [tile for tile in candidates if _fits(card, tile, most)]
    return sorted(fitting, key=lambda tile: cycles(card, layer, reads, tile))


def overlap(window: Window) -> bool:
    """Whether neighbouring pixels read the same bytes."""
    return any(size > stride for size, stride in zip(window.kernel, window.strides, strict=True))


@dataclass(frozen=True)
class _Estimate:
    """Cycles of a group of reads and of an output, where a multiprocessor has others to do; and for a block alone."""

    tiles: int
    groups: int
    group: float
    output: float
    group_alone: float
    output_alone: float

    @staticmethod
    def of(card: Card, layer: Layer, reads: int, tile: CardTile) -> _Estimate:
        image = layer.destination
        pixels, filters = image.batch * image.height * image.width, image.blocks * image.block
        tiles = ceil(pixels / tile.rows) * ceil(filters / tile.columns)
        depth = tile.together * STEP_BYTES
        fetched = (tile.rows * (_OVERLAPPING if overlap(layer.window) else 1) + tile.columns) * depth
        near_bytes = min(_MOST_NEAR_BYTES, card.near_bytes * card.multiprocessors / min(tiles, card.multiprocessors))
        macs = _REACHED[tile.unit] * tile.unit.macs(card)
        group = max(tile.rows * tile.columns * depth / macs, fetched / near_bytes)
        output = tile.rows * tile.columns * _OUTPUT_CYCLES * (_ADDING if layer.residual else 1)
        alone = max(group, _LATENCY_CYCLES / tile.ahead), output * _BUSY_THREADS / tile.threads
        return _Estimate(tiles, ceil(reads / tile.together), group, output, *alone)


def cycles(card: Card, layer: Layer, reads: int, tile: CardTile) -> float:
    """Estimated cycles of the whole layer.

    A multiprocessor has several blocks at a time: it is busy with what all of them do, or each waits for its own.
    """
    one = _Estimate.of(card, layer, reads, tile)
    together = min(resident(card, tile, reads), ceil(one.tiles / card.multiprocessors))
    busy = one.groups * one.group + one.output + tile.threads * _THREAD_CYCLES
    alone = one.groups * one.group_alone + one.output_alone + _START_CYCLES + (tile.slices > 1) * _COMBINING_CYCLES
    return ceil(one.tiles / (card.multiprocessors * together)) * max(together * busy, alone)


def most_blocks(card: Card, layer: Layer, reads: int, tile: CardTile) -> int | None:
    """How many blocks compute tiles one after the other, where that pays: outputs take so long that it is well to have
    the next tile's reads under way. None: a block has one tile, as is better for long products."""
    one = _Estimate.of(card, layer, reads, tile)
    if one.output_alone < _LEAST_OUTPUT * one.groups * one.group_alone:
        return None
    return card.multiprocessors * resident(card, tile, reads)


def resident(card: Card, tile: CardTile, reads: int) -> int:
    """How many blocks a multiprocessor holds at a time."""
    by_memory = card.shared_bytes // (tile.shared_bytes(reads) + 1024)
    return max(1, min(tile.resident, by_memory, card.threads // tile.threads))


def _fits(card: Card, tile: CardTile, reads: int) -> bool:
    small = tile.threads <= _MOST_THREADS_OF_A_BLOCK and tile.registers * tile.threads <= _REGISTERS
    return small and tile.shared_bytes(reads) <= card.block_shared_bytes
