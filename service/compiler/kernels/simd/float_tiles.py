"""Tiles of float products: how many rows and vectors of columns are added up in registers at a time.

As `tiles` estimates those of integers. A float multiply-add starts as often as a load of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from service.compiler.kernels.simd.accumulators import Tile
from service.compiler.kernels.simd.isa import Isa
from service.core.digest import digest_of_json

_MOST_ROWS, _MOST_VECTORS = 28, 8
_BROADCAST = 0.5  # loads of one element in a load of a vector
_LINE_BYTES, _SETS, _WAYS = 64, 64, 8  # of the first level of cache
_FAR_LINE = 3.0  # cycles for a line of the second level
_TABLE_SIZE = 24


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
    """Products `out[y, x, n] = sum over taps and k of lhs[y, x, tap, k] * rhs[tap, k, n]`, of contiguous k and n.

    Attributes:
        outer: products beside each other.
        grid: y and x; of matrices one row.
        lhs_steps, out_steps: from one y to the next, and from one x, in elements.
        taps: extent and step (in elements of lhs) of each loop around k; steps of the first are larger.
        run: of k.
        columns: of n.
        rhs_step: from one k to the next, where rhs is computed; 0 where it is laid out.
    """

    outer: tuple[Outer, ...]
    grid: tuple[int, int]
    lhs_steps: tuple[int, int]
    out_steps: tuple[int, int]
    taps: tuple[tuple[int, int], ...]
    run: int
    columns: int
    rhs_step: int = 0

    @property
    def images(self) -> int:
        return math.prod(each.extent for each in self.outer)

    @property
    def depth(self) -> int:
        """Products of a sum."""
        return math.prod(extent for extent, _ in self.taps) * self.run

    @property
    def macs(self) -> int:
        return self.images * math.prod(self.grid) * self.depth * self.columns

    def parts(self, isa: Isa, tile: Tile) -> int:
        """Tiles of columns."""
        return -(-self.vectors(isa) // tile.blocks)

    def vectors(self, isa: Isa) -> int:
        return -(-self.columns // isa.lanes)

    def tiles(self, tile: Tile) -> int:
        """Tiles of rows."""
        return -(-self.grid[0] // tile.rows) * -(-self.grid[1] // tile.columns)


def ranked(isa: Isa, geometry: Geometry) -> list[Tile]:
    """The tiles that are worth trying, the one with the least estimated cycles first."""
    return sorted(_candidates(isa, geometry), key=lambda tile: cycles(isa, geometry, tile))[:_TABLE_SIZE]


def cycles(isa: Isa, geometry: Geometry, tile: Tile) -> float:
    """Estimated cycles on one core."""
    rate, rows = isa.rates, tile.rows * tile.columns
    work = rows * tile.blocks * rate.load
    loads = (rows * _BROADCAST + tile.blocks) * rate.load
    if _conflicts(geometry, tile) > _WAYS - 2:  # lines are lost before all of their elements were read
        loads += rows * _FAR_LINE
    step = max(work, loads, rate.latency) + rate.overlap * min(work, loads)
    parts = geometry.images * geometry.parts(isa, tile)
    total = parts * geometry.tiles(tile) * (geometry.depth * step + rows * tile.blocks * rate.epilogue.wide + rate.tile)
    if geometry.rhs_step:
        total += parts * geometry.depth * tile.blocks * 2 * rate.load
    return total


def key_of(isa: Isa, geometry: Geometry) -> str:
    """Names all that decides which tile is fastest."""
    return digest_of_json({"isa": isa.name, "float": asdict(geometry)})


def _candidates(isa: Isa, geometry: Geometry) -> Iterator[Tile]:
    height, width = geometry.grid
    for blocks in range(1, min(_MOST_VECTORS, geometry.vectors(isa)) + 1):
        for rows in range(1, min(_MOST_ROWS, height) + 1):
            for columns in range(1, min(_MOST_ROWS, width) + 1):
                if rows > 1 and columns < width:
                    continue  # a tile of several rows spans them
                if rows * columns * blocks + blocks + 1 <= isa.registers:
                    yield Tile(rows, columns, blocks)


def _conflicts(geometry: Geometry, tile: Tile) -> int:
    """The most rows of a tile whose elements of one k fall into one set of the first level of cache."""
    (down, right), period = geometry.lhs_steps, _SETS * _LINE_BYTES
    sets = [
        4 * (row * down + column * right) % period // _LINE_BYTES
        for row in range(tile.rows)
        for column in range(tile.columns)
    ]
    return max(sets.count(each) for each in set(sets))
