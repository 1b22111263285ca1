"""The costs of instructions, for the cost models of the kernel families.

An architecture has one `Rates` for each of its instruction sets, fitted to measured times of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpilogueRates:
    """The cycles that one core needs for the parts of an epilogue, for one vector of accumulators.

    Attributes:
        float_scale: requantizes with a float multiplier.
        fixed_point: requantizes with a fixed-point multiplier.
        exception: compares with and replaces one exceptional accumulator of `FusedScale`.
        residual: adds a residual.
        wide: stores 32-bit values unchanged or as floats.
        int16: requantizes to 16 bits.
    """

    float_scale: float
    fixed_point: float
    exception: float
    residual: float
    wide: float
    int16: float


@dataclass(frozen=True)
class DepthwiseRates:
    """The costs of the parts of a depthwise convolution, in vector instructions.

    Attributes:
        transpose: transposes four pixels and prepares them for `dot`.
        dot: computes one `dot`.
        requantize: requantizes one vector of accumulators.
        pack: packs and stores four requantized vectors.
        tile: the overhead of a tile.
        free_accumulators: the number of accumulators that fit the registers without additional cost.
        crowding: the relative cost of each further accumulator.
    """

    transpose: float
    dot: float
    requantize: float
    pack: float
    tile: float
    free_accumulators: int
    crowding: float


@dataclass(frozen=True)
class Rates:
    """The cycles that one core needs for each type of vector instruction, and other parameters of the cost models.

    Attributes:
        dot: one `Isa.dot`.
        load: one load of a vector, broadcast or not.
        together: the number of operands that one load provides if their bytes are contiguous (`Isa.operands`).
        operand: the cost of `Isa.operand` for all operands of one load, in addition to the load.
        gather: the cost of `Isa.gather`, in addition to `load` and `operand`.
        latency: the latency of `dot`. One step of a reduction takes at least this long.
        near_bytes: weights up to this size stay in L1 cache from one tile of pixels to the next.
        far_load: the cost of a load of larger weights, relative to `load`.
        overlap: loads and products overlap; this is the fraction of the shorter of both that is not hidden.
        tile: the overhead of a tile: addresses, loops and first loads.
        sharing: a kernel with fewer cycles than this runs on one thread. For longer kernels, the runtime measures if
            several threads are faster.
        elementwise: one elementwise operator on a vector of bytes.
        resize: interpolates a vector of bytes.
    """

    dot: float
    load: float
    together: int
    operand: float
    gather: float
    latency: float
    near_bytes: int
    far_load: float
    overlap: float
    tile: float
    sharing: float
    elementwise: float
    resize: float
    epilogue: EpilogueRates
    depthwise: DepthwiseRates


@dataclass(frozen=True)
class MatrixRates:
    """The cycles that one core needs for instructions on tiles, and for the code around them.

    Attributes:
        row: multiplies one row of pixels by a tile of weights.
        latency: the delay, in addition to the time for its rows, until the same tile of accumulators can be used again.
        near_row, far_row: loads a row of a tile from L1 cache, and from L2 cache.
        memory_row: loads a row from memory into L2 cache.
        near_bytes, far_bytes: the usable sizes of the L1 cache and of the L2 cache.
        overlap: loads and products overlap; this is the fraction of the shorter of both that is not hidden.
        vector: the factor that converts cycles of `EpilogueRates`, which were fitted to another core, to this core.
        pack: copies 64 bytes of a pixel into the layout for tiles.
        epilogue: the cost for one vector of accumulators, in addition to the epilogue itself.
        group: the overhead of a group of tiles: loops, and storing its accumulators.
        item: the overhead of one iteration of the parallel loop: configuring tiles and allocating memory.
    """

    row: float
    latency: float
    near_row: float
    far_row: float
    memory_row: float
    near_bytes: int
    far_bytes: int
    overlap: float
    vector: float
    pack: float
    epilogue: float
    group: float
    item: float
