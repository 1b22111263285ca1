"""What an instruction set's instructions cost, as the cost models of the kernel families count it.

An architecture has one `Rates` for each of its instruction sets, fitted to what kernels took.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpilogueRates:
    """Cycles of one core for what follows one vector of accumulators.

    Attributes:
        float_scale: requantizing by a float multiplier.
        fixed_point: requantizing by a fixed-point multiplier.
        exception: one accumulator that `FusedScale` replaces.
        residual: adding a residual.
        wide: storing 32-bit values as they are, or as floats.
        int16: requantizing to 16 bits.
    """

    float_scale: float
    fixed_point: float
    exception: float
    residual: float
    wide: float
    int16: float


@dataclass(frozen=True)
class DepthwiseRates:
    """Vector instructions of a depthwise convolution.

    Attributes:
        transpose: to transpose four pixels and prepare them for `dot`.
        dot: for one `dot`.
        requantize: for one vector of accumulators.
        pack: to pack and store four of those.
        tile: for a tile, besides.
        free_accumulators: how many are held in registers without a cost.
        crowding: what each further one adds, as a part of the whole.
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
    """Cycles of one core for one vector instruction of each kind, and what else the cost models count.

    Attributes:
        dot: one `Isa.dot`.
        load: one vector, broadcast or not.
        together: operands that one load makes where their bytes lie side by side (`Isa.operands`).
        operand: what `Isa.operand` does besides loading, for as many as are loaded together.
        gather: what `Isa.gather` does besides that.
        latency: of `dot`: a step cannot be shorter.
        near_bytes: how much of the weights that every tile of pixels reads again stays in the first level of cache.
        far_load: a load of other weights, in loads.
        overlap: the part of the shorter of loads and products that the longer one does not hide.
        tile: a tile's addresses, loops and first loads.
        sharing: a shorter kernel is computed by one thread; for others the runtime measures whether sharing pays.
        elementwise: an operator on a vector of bytes.
        resize: interpolating a vector of bytes.
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
    """Cycles of one core for instructions on tiles, and what stands around them.

    Attributes:
        row: to multiply one row of pixels by a tile of weights.
        latency: until a tile of totals can be added to again, besides its rows.
        near_row, far_row: to load a row of a tile from the first level of cache, and from the second.
        memory_row: for it to come to the second.
        near_bytes, far_bytes: how much stays in the first level, and in the second.
        overlap: the part of the shorter of loads and products that the longer one does not hide.
        vector: a cycle of the cost model of vectors, which was fitted to another core.
        pack: to lay out 64 bytes of a pixel for tiles.
        epilogue: for one vector of totals, besides the epilogue itself.
        group: a group of tiles: its loops, and storing its totals.
        item: one item of the parallel loop: configuring the tiles, its memory.
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
