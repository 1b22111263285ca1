"""Tiles of float products: how many rows and vectors of columns are added up in registers at a time.

As `convolution.tiles` estimates those of integers. A float multiply-add starts as often as a load of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.vector.isa import Isa
from service.core.digest import digest_of_json

_MOST_ROWS, _MOST_VECTORS = 28, 8
_BROADCAST = 0.5  # cycles to load one element into every lane
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8  # of the first level of cache
_FAR_LINE = 3.0  # cycles for a line of the second level
_FARTHER_LOAD = 6.0  # loads of what does not fit that level, in loads
FAR_BYTES = 512 << 10  # of the second level of cache
_NEAR_BYTES = 40 << 10  # of the first level
_GROUP_BYTES = 192 << 10  # fewer pages than are known of at a time
_SHARES = 16  # of a parallel loop, at least
_TABLE_SIZE = 24
_DECODED = 2  # vectors for each vector of columns, and beside all: words, scales; zero points, and one on its way


@dataclass(frozen=True)
class Outer:
    """A dimension of products beside each other: a batch, the heads of attention, groups of channels.

    Attributes:
        extent: how many.
        lhs, rhs, out: from one to the next, in elements; of weights laid out before, in panels of all columns.
    """

    extent: int
    lhs: int
    rhs: int
    out: int


@dataclass(frozen=True)
class Geometry:
    """Products `out[y, x, n] = sum over taps and k of lhs[y, x, tap, k] * rhs[tap, k, n]`, of contiguous k.

    Attributes:
        outer: products beside each other.
        grid: y and x; of matrices one row.
        lhs_steps, out_steps: from one y to the next, and from one x, in elements.
        taps: extent and step (in elements of lhs) of each loop around k; steps of the first are larger.
        run: of k.
        columns: of n.
        rhs_steps: from one k to the next, and from one n, where rhs is computed; one of them is 1.
        starts: the first elements of lhs, rhs and out.
        group: neighbours of k that are multiplied in one step; the last of a run may be fewer.
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
        """Products of a sum."""
        return math.prod(extent for extent, _ in self.taps) * self.run

    @property
    def run_steps(self) -> int:
        """Steps of a run."""
        return -(-self.run // self.group)

    @property
    def steps(self) -> int:
        """Steps of a sum."""
        return math.prod(extent for extent, _ in self.taps) * self.run_steps

    @property
    def element_bytes(self) -> int:
        """Of lhs."""
        return 4 // self.group

    @property
    def macs(self) -> int:
        return self.images * math.prod(self.grid) * self.depth * self.columns

    def parts(self, isa: Isa, tile: Tile) -> int:
        """Tiles of columns."""
        return -(-self.vectors(isa) // tile.blocks)

    def vectors(self, isa: Isa) -> int:
        return -(-self.columns // isa.lanes)

    def panel_bytes(self, isa: Isa, tile: Tile) -> int:
        """The right operand of a tile of columns."""
        return self.steps * tile.blocks * isa.bytes

    def parts_at_once(self, isa: Isa, tile: Tile, *, constant: bool) -> int:
        """Tiles of columns that a tile of rows is multiplied by, one after the other, where it stays in the first level
        of cache meanwhile: as many as stay in the second, and leave each thread its share."""
        rows = self.images * (self.tiles(tile) if constant else 1)
        shares = -(-_SHARES // rows)
        panel = self.panel_bytes(isa, tile)
        near = panel + self.element_bytes * tile.rows * tile.columns * self.depth <= _NEAR_BYTES
        return max(1, min(_GROUP_BYTES // panel if near else 1, self.parts(isa, tile) // shares))

    def tiles(self, tile: Tile) -> int:
        """Tiles of rows."""
        return -(-self.grid[0] // tile.rows) * -(-self.grid[1] // tile.columns)


def ranked(isa: Isa, geometry: Geometry, *, decoded: bool = False) -> list[Tile]:
    """The tiles that are worth trying, the one with the least estimated cycles first.

    Args:
        decoded: whether a tile that has all rows decodes its weights: what that takes stays in registers too.
    """
    tiles = [
        tile
        for tile in _candidates(isa, geometry)
        if not decoded
        or geometry.tiles(tile) > 1
        or (tile.rows * tile.columns + _DECODED) * tile.blocks + _DECODED < isa.registers
    ]
    return sorted(tiles, key=lambda tile: cycles(isa, geometry, tile))[:_TABLE_SIZE]


def cycles(isa: Isa, geometry: Geometry, tile: Tile) -> float:
    """Estimated cycles on one core."""
    rate, rows = isa.rates, tile.rows * tile.columns
    work = rows * tile.blocks * rate.load
    size = geometry.panel_bytes(isa, tile)
    far = 1.0 if size <= rate.near_bytes else rate.far_load if size <= FAR_BYTES else _FARTHER_LOAD
    loads = rows * _BROADCAST + tile.blocks * far * rate.load
    if _conflicts(geometry, tile) > _WAYS - 2:  # lines are lost before all of their elements were read
        loads += rows * _FAR_LINE
    step = max(work, loads, rate.latency) + rate.overlap * min(work, loads)
    parts = geometry.images * geometry.parts(isa, tile)
    total = parts * geometry.tiles(tile) * (geometry.steps * step + rows * tile.blocks * rate.epilogue.wide + rate.tile)
    if geometry.rhs_steps is not None:
        total += parts * geometry.steps * tile.blocks * 2 * rate.load
    return total


def key_of(isa: Isa, geometry: Geometry, bits: int = 0) -> str:
    """Names all that decides which tile is fastest; `bits` are those of weights that are decoded, or of bfloat16."""
    parts = {"isa": isa.name, "float": {name: value for name, value in asdict(geometry).items() if name != "group"}}
    return digest_of_json({**parts, "bits": bits} if bits else parts)


def _candidates(isa: Isa, geometry: Geometry) -> Iterator[Tile]:
    height, width = geometry.grid
    for blocks in range(1, min(_MOST_VECTORS, geometry.vectors(isa)) + 1):
        for rows in range(1, min(_MOST_ROWS, height) + 1):
            for columns in range(1, min(_MOST_ROWS, width) + 1):
                if rows > 1 and columns < width:
                    continue  # a tile of several rows spans them
                if rows * columns * blocks + blocks + 1 < isa.registers:  # one more is for what is on its way
                    yield Tile(rows, columns, blocks)


def _conflicts(geometry: Geometry, tile: Tile) -> int:
    """The most rows of a tile whose elements of one k fall into one set of the first level of cache."""
    (down, right), period = geometry.lhs_steps, _SETS * _LINE_BYTES
    sets = [
        geometry.element_bytes * (row * down + column * right) % period // _LINE_BYTES
        for row in range(tile.rows)
        for column in range(tile.columns)
    ]
    return max(sets.count(each) for each in set(sets))
