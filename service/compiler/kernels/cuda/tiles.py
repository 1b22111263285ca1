"""The cost model of convolutions on GPUs. It chooses tiles.

A thread block computes a tile: some pixels by some filters. The reduction of a tile is a list of steps (`Reads`), which
are called *reads* in names. The block loads several steps into a buffer in shared memory, a *stage*, and multiplies
them between two barriers, while it fills other stages. Small tiles divide the steps among several *teams* of threads
(`slices`), whose sums are added at the end.

The model estimates the cycles of a multiprocessor from the parameters of the GPU (`gpus`). Thread blocks run in waves.
The estimates only need to rank the candidates correctly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from math import ceil

from service.compiler.kernels.cuda.gpus import Gpu
from service.compiler.kernels.layer import Layer, Window

STEP_BYTES = 32  # the number of bytes of a pixel that one step multiplies
_WARP = 32
_MOST_THREADS_OF_A_BLOCK = 512
_REGISTERS = 65536
_OTHER_REGISTERS = 64  # the registers of a thread in addition to its sums and operands
# These constants are fitted to measured times of ResNet-50's convolutions at batch 64 on a GPU of capability 9.0. By
# the geometric mean, the chosen tiles take 4 % longer than the best ones (`benchmarks/GPU.md`).
_REACHED = (0.7, 0.5, 0.7)  # the fraction of the peak rate that each multiply instruction reaches
_START_CYCLES = 2000  # the overhead of a tile: computing its windows, its first loads, the latency of its output
_THREAD_CYCLES = 2  # the cycles of a multiprocessor for the other instructions of one thread
_COMBINING_CYCLES = 300  # the cycles to add the sums of a tile's teams
_LARGEST_SLICED = 64  # larger tiles keep a multiprocessor busy, so their steps are not divided among teams
_LATENCY_CYCLES = 800  # the latency of a load from L2 cache while all multiprocessors load
_MOST_NEAR_BYTES = 64  # the bytes per cycle from L2 cache to a multiprocessor while few others load
_OVERLAPPING = 0.5  # if windows overlap, the fraction of bytes that are loaded from L2 cache
_OUTPUT_CYCLES, _ADDING = 0.08, 3  # the cycles per output byte if all threads are busy; the factor with a residual
_BUSY_THREADS = 512  # the number of threads with which a multiprocessor is busy
_LEAST_OUTPUT = 0.5  # if outputs take more than this part of the products' time, a block computes several tiles
_CHUNK_BYTES = 16  # the number of bytes that a thread copies at a time
_FREE_COPIES = 8  # the number of copies between two barriers for which a thread needs no additional registers
_ALIGNMENT = 256  # the alignment of stages in bytes


class Unit(IntEnum):
    """The types of multiply instructions: `dp4a`, `mma` and `wgmma`. Each has a C++ type in `source/tiles.cuh`."""

    DOT = 0
    MATRIX = 1
    GROUP = 2

    @property
    def instruction(self) -> str:
        return ("dp4a", "mma", "wgmma")[self]

    @property
    def threads(self) -> int:
        """The number of threads that execute the instruction together: a thread, a warp, or four warps."""
        return (1, _WARP, 4 * _WARP)[self]

    def macs(self, gpu: Gpu) -> int:
        """Returns the products per cycle of a multiprocessor; 0 if the GPU lacks the instruction."""
        return (gpu.dot_macs, gpu.matrix_macs, gpu.group_macs)[self]


@dataclass(frozen=True)
class GpuTile:
    """The tile that a thread block computes.

    Attributes:
        rows: the number of pixels.
        columns: the number of filters.
        own_rows, own_columns: the part of the tile that one thread (`dp4a`), one warp (`mma`) or four warps (`wgmma`)
            compute.
        steps: the number of reduction steps that a team multiplies between two barriers.
        stages: the number of stages in shared memory, each with `steps` steps of every team.
        slices: the number of teams of threads among which the reduction steps are divided.
        unit: the type of multiply instruction.
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
    def of(numbers: tuple[int, ...]) -> GpuTile:
        rows, columns, own_rows, own_columns, steps, stages, slices, unit = numbers
        return GpuTile(rows, columns, own_rows, own_columns, steps, stages, slices, Unit(unit))

    @property
    def threads(self) -> int:
        """The number of threads of the thread block."""
        owners = self.rows // self.own_rows * (self.columns // self.own_columns)
        return self.slices * owners * self.unit.threads

    @property
    def together(self) -> int:
        """The number of reduction steps that all teams of a block multiply between two barriers."""
        return self.steps * self.slices

    @property
    def ahead(self) -> int:
        """The number of stages that are being filled while one is multiplied, as in the C++ class `Convolution`."""
        return self.stages - 1 - (self.unit is Unit.GROUP)

    @property
    def products(self) -> str:
        """The C++ type that multiplies (`source/tiles.cuh`)."""
        sizes = [self.rows, self.columns]
        if self.unit is not Unit.GROUP:
            sizes += [self.own_rows, self.own_columns]
        return f"octet::{self.unit.name.capitalize()}Products<{', '.join(map(str, sizes))}>"

    def shared_bytes(self, reads: int) -> int:
        """Returns the shared memory of a block whose tiles have at most `reads` steps, as in the C++ class
        `Convolution`.
        """
        offsets = -(-reads * 4 // _ALIGNMENT) * _ALIGNMENT
        stages = self.stages * self.together * (self.rows + self.columns) * STEP_BYTES
        output = (self.slices - 1) * self.rows * self.columns * 4 + self.rows * (self.columns + 16)
        return offsets + (stages + output if self.stages > 2 else max(stages, output))

    @property
    def registers(self) -> int:
        """Estimates the registers of a thread. The compiler may use more, to load operands of dp4a earlier."""
        if self.unit is not Unit.DOT:
            sums = self.own_rows * self.own_columns // self.unit.threads
            operands = (self.own_rows + self.own_columns) // 4 if self.unit is Unit.MATRIX else 0
            copies = (self.rows + self.columns) * self.together * STEP_BYTES // (_CHUNK_BYTES * self.threads)
            return sums + operands + _OTHER_REGISTERS + 2 * max(0, copies - _FREE_COPIES)
        return 2 * self.own_rows * self.own_columns + 4 * (self.own_rows + self.own_columns) + _OTHER_REGISTERS

    @property
    def resident(self) -> int:
        """The number of thread blocks that fit a multiprocessor's registers. This number limits the registers that the
        compiler uses.
        """
        return max(1, _REGISTERS // (self.registers * self.threads))


# The rows and columns of a tile, then the rows and columns of the part that one owner computes (`own_rows` …).
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


def promising(gpu: Gpu) -> list[Unit]:
    """Returns the instructions that are worth trying: those of tensor cores if the GPU has them, else `dp4a`."""
    return [unit for unit in (Unit.GROUP, Unit.MATRIX) if unit.macs(gpu)] or [Unit.DOT]


def ranked(gpu: Gpu, layer: Layer, reads: int, units: Sequence[Unit] = ()) -> list[GpuTile]:
    """Returns the tiles that fit the GPU, the fastest first.

    Args:
        reads: the approximate number of reduction steps of a tile.
        units: the instructions that may be used; if empty, the `promising` ones.
    """
    stages = (4, 3, 8) if gpu.copies_ahead else (2,)
    steps = (2, 4) if gpu.copies_ahead else (2,)  # without asynchronous copies, loaded bytes need registers
    candidates = [
        GpuTile(*sizes, step, stage, slices, unit)
        for unit in units or promising(gpu)
        for sizes in _SIZES[unit]
        for step in steps
        for stage in stages
        for slices in ((1, 2, 4) if max(sizes[:2]) <= _LARGEST_SLICED else (1,))
    ]
    most = reads + max(tile.together for tile in candidates)
    fitting = [tile for tile in candidates if _fits(gpu, tile, most)]
    return sorted(fitting, key=lambda tile: cycles(gpu, layer, reads, tile))


def overlap(window: Window) -> bool:
    """Returns true if the windows of neighboring pixels overlap."""
    return any(size > stride for size, stride in zip(window.kernel, window.strides, strict=True))


@dataclass(frozen=True)
class _Estimate:
    """The estimated cycles of the parts of a tile.

    Attributes:
        tiles: the number of tiles of the layer.
        groups: the number of groups of steps; the steps of a group are multiplied between two barriers.
        group, output: the cycles for a group of steps and for the output, if several blocks keep a multiprocessor busy.
        group_alone, output_alone: the same for a block that runs alone, which does not hide latency.
    """

    tiles: int
    groups: int
    group: float
    output: float
    group_alone: float
    output_alone: float

    @staticmethod
    def of(gpu: Gpu, layer: Layer, reads: int, tile: GpuTile) -> _Estimate:
        image = layer.destination
        pixels, filters = image.batch * image.height * image.width, image.blocks * image.block
        tiles = ceil(pixels / tile.rows) * ceil(filters / tile.columns)
        depth = tile.together * STEP_BYTES
        fetched = (tile.rows * (_OVERLAPPING if overlap(layer.window) else 1) + tile.columns) * depth
        near_bytes = min(_MOST_NEAR_BYTES, gpu.near_bytes * gpu.multiprocessors / min(tiles, gpu.multiprocessors))
        macs = _REACHED[tile.unit] * tile.unit.macs(gpu)
        group = max(tile.rows * tile.columns * depth / macs, fetched / near_bytes)
        output = tile.rows * tile.columns * _OUTPUT_CYCLES * (_ADDING if layer.residual else 1)
        alone = max(group, _LATENCY_CYCLES / tile.ahead), output * _BUSY_THREADS / tile.threads
        return _Estimate(tiles, ceil(reads / tile.together), group, output, *alone)


def cycles(gpu: Gpu, layer: Layer, reads: int, tile: GpuTile) -> float:
    """Estimates the cycles of the whole layer.

    A multiprocessor runs several blocks at a time. The time of these blocks is the time for their combined work, or the
    time that a single block takes alone, whichever is longer.
    """
    one = _Estimate.of(gpu, layer, reads, tile)
    together = min(resident(gpu, tile, reads), ceil(one.tiles / gpu.multiprocessors))
    busy = one.groups * one.group + one.output + tile.threads * _THREAD_CYCLES
    alone = one.groups * one.group_alone + one.output_alone + _START_CYCLES + (tile.slices > 1) * _COMBINING_CYCLES
    return ceil(one.tiles / (gpu.multiprocessors * together)) * max(together * busy, alone)


def most_blocks(gpu: Gpu, layer: Layer, reads: int, tile: GpuTile) -> int | None:
    """Returns the number of thread blocks if each should compute several tiles, or None for one tile each.

    Several tiles are faster if outputs take so long that they should overlap with the loads of the next tile. One tile
    is faster if the products take long.
    """
    one = _Estimate.of(gpu, layer, reads, tile)
    if one.output_alone < _LEAST_OUTPUT * one.groups * one.group_alone:
        return None
    return gpu.multiprocessors * resident(gpu, tile, reads)


def resident(gpu: Gpu, tile: GpuTile, reads: int) -> int:
    """Returns the number of thread blocks that can be resident on a multiprocessor."""
    by_memory = gpu.shared_bytes // (tile.shared_bytes(reads) + 1024)
    return max(1, min(tile.resident, by_memory, gpu.threads // tile.threads))


def _fits(gpu: Gpu, tile: GpuTile, reads: int) -> bool:
    small = tile.threads <= _MOST_THREADS_OF_A_BLOCK and tile.registers * tile.threads <= _REGISTERS
    return small and tile.shared_bytes(reads) <= gpu.block_shared_bytes
