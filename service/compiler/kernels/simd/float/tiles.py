"""The cost model of float products. It chooses the tile: the rows and vectors of columns whose sums are in registers.

This model corresponds to `convolution.tiles` for integers. It assumes that a float multiply-add costs as much as a
vector load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.compiler.kernels.group import Length
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.vector.isa import Isa
from service.core.digest import digest_of_json

_MOST_ROWS, _MOST_VECTORS = 28, 8
_BROADCAST = 0.5  # cycles to load one element into every lane
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8  # the geometry of the L1 cache
_FAR_LINE = 3.0  # cycles to load a cache line from L2 cache
_FARTHER_LOAD = 6.0  # the cost of a load from beyond L2 cache, relative to a load from L1 cache
FAR_BYTES = 512 << 10  # the usable size of the L2 cache
_NEAR_BYTES = 40 << 10  # the usable size of the L1 cache
_GROUP_BYTES = 192 << 10  # the size of a group of parts; it has fewer pages than the TLB has entries
_SHARES = 16  # the number of iterations of the parallel loop is at least this, if possible
_TABLE_SIZE = 24
_DECODED = (
    2  # decoding needs two registers for each vector of columns (words, scales) and two more (zero points, a temporary)
)


@dataclass(frozen=True)
class Outer:
    """A dimension of independent products: a batch, the heads of attention, or groups of channels.

    Attributes:
        extent: the size of the dimension.
        lhs, rhs, out: the dimension's stride in each operand, in elements. The stride in constant weights is in
            matrices.
    """

    extent: int
    lhs: int
    rhs: int
    out: int


@dataclass(frozen=True)
class Geometry:
    """Products `out[y, x, n] = sum over taps and k of lhs[y, x, tap, k] * rhs[tap, k, n]`. The index k is contiguous in
    lhs.

    Attributes:
        outer: the dimensions of independent products.
        grid: the sizes of y and x; for matrices, y is 1 and x is the number of rows.
        lhs_steps, out_steps: the strides of y and x, in elements.
        taps: the (size, stride in elements of lhs) of each loop around k, with the largest stride first.
        run: the size of k; all values of k for one tap are a *run*.
        columns: the size of n.
        rhs_steps: the strides of k and n if rhs is computed; one of the strides is 1.
        starts: the offsets of the first elements of lhs, rhs and out.
        group: the number of consecutive k that are multiplied in one step. The last step of a run may have fewer.
    """

    outer: tuple[Outer, ...]
    grid: tuple[int, int]
    lhs_steps: tuple[int, int]
    out_steps: tuple[int, int]
    taps: tuple[tuple[int, int], ...]
    run: int
    columns: int
    rhs_steps: tuple[int, int] | None = None
    starts: tuple[int, int, int] = (0, 0, 0)
    group: int = 1

    @property
    def images(self) -> int:
        return math.prod(each.extent for each in self.outer)

    @property
    def depth(self) -> int:
        """The number of products that are added to one element of out."""
        return math.prod(extent for extent, _ in self.taps) * self.run

    @property
    def run_steps(self) -> int:
        """The number of steps of a run."""
        return -(-self.run // self.group)

    @property
    def steps(self) -> int:
        """The number of steps in which one element of out is computed."""
        return math.prod(extent for extent, _ in self.taps) * self.run_steps

    @property
    def element_bytes(self) -> int:
        """The size of an element of lhs."""
        return 4 // self.group

    @property
    def macs(self) -> int:
        return self.images * math.prod(self.grid) * self.depth * self.columns

    def parts(self, isa: Isa, tile: Tile) -> int:
        """Returns the number of parts, which are the tiles of columns."""
        return -(-self.vectors(isa) // tile.blocks)

    def vectors(self, isa: Isa) -> int:
        return -(-self.columns // isa.lanes)

    def panel_bytes(self, isa: Isa, tile: Tile) -> int:
        """Returns the size of the right operand for one part."""
        return self.steps * tile.blocks * isa.bytes

    def parts_at_once(self, isa: Isa, tile: Tile, *, constant: bool) -> int:
        """Returns the number of parts by which a tile of rows is multiplied in succession, while it is in L1 cache.

        The number is as large as the caches allow, but small enough to leave work for all threads.
        """
        rows = self.images * (self.tiles(tile) if constant else 1)
        shares = -(-_SHARES // rows)
        panel = self.panel_bytes(isa, tile)
        near = panel + self.element_bytes * tile.rows * tile.columns * self.depth <= _NEAR_BYTES
        return max(1, min(_GROUP_BYTES // panel if near else 1, self.parts(isa, tile) // shares))

    def tiles(self, tile: Tile) -> int:
        """Returns the number of tiles of rows."""
        return -(-self.grid[0] // tile.rows) * -(-self.grid[1] // tile.columns)


def ranked(isa: Isa, geometry: Geometry, *, decoded: bool = False, length: Length | None = None) -> list[Tile]:
    """Returns the tiles that are worth trying, the one with the fewest estimated cycles first.

    Args:
        decoded: true if the kernel decodes weights in registers when a tile contains all rows. Such a tile leaves
            registers for decoding.
        length: what depends on the length of the input. The best tile is then the one that is at most a little slower
            than the best one for any length.
    """
    tiles = [
        tile
        for tile in _candidates(isa, geometry)
        if not decoded
        or geometry.tiles(tile) > 1
        or (tile.rows * tile.columns + _DECODED) * tile.blocks + _DECODED < isa.registers
    ]
    if length is None:
        return sorted(tiles, key=lambda tile: cycles(isa, geometry, tile))[:_TABLE_SIZE]
    excess = dict.fromkeys(tiles, 1.0)
    for rows, columns, depth in length.shares(geometry.grid[1], geometry.columns, geometry.run):
        part = replace(geometry, grid=(geometry.grid[0], rows), columns=columns, run=depth)
        own = {tile: cycles(isa, part, tile) for tile in tiles}
        excess = {tile: max(excess[tile], own[tile] / min(own.values())) for tile in tiles}
    return sorted(tiles, key=lambda tile: excess[tile])[:_TABLE_SIZE]


def cycles(isa: Isa, geometry: Geometry, tile: Tile) -> float:
    """Estimates the cycles on one core."""
    rate, rows = isa.rates, tile.rows * tile.columns
    work = rows * tile.blocks * rate.load
    size = geometry.panel_bytes(isa, tile)
    far = 1.0 if size <= rate.near_bytes else rate.far_load if size <= FAR_BYTES else _FARTHER_LOAD
    loads = rows * _BROADCAST + tile.blocks * far * rate.load
    if _conflicts(geometry, tile) > _WAYS - 2:  # cache lines are evicted before all of their elements have been read
        loads += rows * _FAR_LINE
    step = max(work, loads, rate.latency) + rate.overlap * min(work, loads)
    parts = geometry.images * geometry.parts(isa, tile)
    total = parts * geometry.tiles(tile) * (geometry.steps * step + rows * tile.blocks * rate.epilogue.wide + rate.tile)
    if geometry.rhs_steps is not None:
        total += parts * geometry.steps * tile.blocks * 2 * rate.load
    return total


def key_of(isa: Isa, geometry: Geometry, bits: int = 0, length: Length | None = None) -> str:
    """Returns a digest of everything that determines the fastest tile.

    Args:
        bits: the number of bits of weights that are decoded, or 16 for bfloat16, or 0 for float32.
        length: what depends on the length of the input.
    """
    parts: dict[str, Any] = {
        "isa": isa.name,
        "float": {name: value for name, value in asdict(geometry).items() if name != "group"},
    }
    if bits:
        parts["bits"] = bits
    if length is not None:
        parts["length"] = [length.rows, length.columns, length.depth]
    return digest_of_json(parts)


def _candidates(isa: Isa, geometry: Geometry) -> Iterator[Tile]:
    height, width = geometry.grid
    for blocks in range(1, min(_MOST_VECTORS, geometry.vectors(isa)) + 1):
        for rows in range(1, min(_MOST_ROWS, height) + 1):
            for columns in range(1, min(_MOST_ROWS, width) + 1):
                if rows > 1 and columns < width:
                    continue  # a tile with several rows must include whole rows
                if rows * columns * blocks + blocks + 1 < isa.registers:  # one more register is for a temporary
                    yield Tile(rows, columns, blocks)


def _conflicts(geometry: Geometry, tile: Tile) -> int:
    """Returns the largest number of rows of a tile whose elements at the same k map to the same set of the L1 cache."""
    (down, right), period = geometry.lhs_steps, _SETS * _LINE_BYTES
    sets = [
        geometry.element_bytes * (row * down + column * right) % period // _LINE_BYTES
        for row in range(tile.rows)
        for column in range(tile.columns)
    ]
    return max(sets.count(each) for each in set(sets))
