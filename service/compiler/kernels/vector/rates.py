"""The costs of instructions, for the cost models of the kernel families.

An architecture has one `Rates` for each of its instruction sets, fitted to measured times of kernels.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpilogueRates:
    """The cycles of one core for the epilogue of one vector of accumulators.

    Attributes:
        float_scale: to requantize with a float multiplier.
        fixed_point: to requantize with a fixed-point multiplier.
        exception: to replace one accumulator that is an exception in `FusedScale`.
        residual: to add a residual.
        wide: to store 32-bit values unchanged or as floats.
        int16: to requantize to 16 bits.
    """

    float_scale: float
    fixed_point: float
    exception: float
    residual: float
    wide: float
    int16: float


@dataclass(frozen=True)
class DepthwiseRates:
    """The costs of a depthwise convolution, in vector instructions.

    Attributes:
        transpose: to transpose four pixels and prepare them for `dot`.
        dot: for one `dot`.
        requantize: for one vector of accumulators.
        pack: to pack and store four of these.
        tile: the overhead of a tile.
        free_accumulators: the number of accumulators that fit the registers without additional cost.
        crowding: the relative cost of each additional accumulator.
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
    """The cycles of one core for each type of vector instruction, and other parameters of the cost models.

    Attributes:
        dot: one `Isa.dot`.
        load: one load of a vector, broadcast or not.
        together: the number of operands that one load provides if their bytes are contiguous (`Isa.operands`).
        operand: the cost of `Isa.operand` in addition to the load, for the operands of one load.
        gather: the cost of `Isa.gather` in addition to that.
        latency: the latency of `dot`, below which a step cannot be.
        near_bytes: the size of weights that stay in L1 cache from one tile of pixels to the next.
        far_load: the cost of a load of other weights, relative to `load`.
        overlap: loads and products overlap; this is the fraction of the shorter of both that is not hidden.
        tile: the overhead of a tile: addresses, loops and first loads.
        sharing: kernels with fewer cycles are computed by one thread. For others, the runtime measures if several
            threads are faster.
        elementwise: one operator on a vector of bytes.
        resize: to interpolate a vector of bytes.
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
    """The cycles of one core for instructions on tiles, and for the code around them.

    Attributes:
        row: to multiply one row of pixels by a tile of weights.
        latency: the delay until a tile of totals can be added to again, in addition to its rows.
        near_row, far_row: to load a row of a tile from L1 cache, and from L2 cache.
        memory_row: to load a row into L2 cache.
        near_bytes, far_bytes: the usable size of the L1 cache, and of the L2 cache.
        overlap: loads and products overlap; this is the fraction of the shorter of both that is not hidden.
        vector: the factor for cycles of the cost model of vectors, which was fitted to another core.
        pack: to lay out 64 bytes of a pixel for tiles.
        epilogue: for one vector of totals, in addition to the epilogue itself.
        group: the overhead of a group of tiles: loops, and storing its totals.
        item: the overhead of one item of the parallel loop: configuring tiles, and its memory.
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
