"""How large a tile to hold in registers: the cost model of convolutions, in one place.

Cycles of one core, from what an instruction set can start per cycle; the constants were fitted to times on Zen 4, of
thirteen convolutions and matrix products for each instruction set. What counts is that the order of the candidates is
right: 49 of the 52 picks are within 5 % of the best that was found, the others (two of very short sums) within 8 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from service.compiler.kernels.layer import Layer
from service.compiler.kernels.simd.reduction import Reduction
from service.compiler.kernels.simd.totals import Tile
from service.compiler.kernels.x86.isa import PIXELS, Isa
from service.core.digest import digest_of_json

_MOST_COLUMNS, _MOST_ROWS, _MOST_BLOCKS = 28, 4, 8
# What stays in the first level of cache of the weights that every tile of pixels reads again; others come from the
# second level, at half the rate.
NEAR_BYTES, _FAR_LOADS = 24 * 1024, 2.0
# A tile's addresses, loops and first loads.
TILE_CYCLES = 12.0
# Waking another thread and waiting for it, several times over.
_SHARING_CYCLES = 10_000.0


@dataclass(frozen=True)
class Rates:
    """Cycles for one vector instruction of each kind.

    Attributes:
        dot: one `Isa.dot`.
        load: one vector, broadcast or not.
        operand: what `Isa.operand` does besides loading.
        shuffle: what `Isa.gather` does besides that.
        latency: of `dot`: a step cannot be shorter.
    """

    dot: float
    load: float
    operand: float
    shuffle: float
    latency: float


def rates(isa: Isa) -> Rates:
    width = isa.lanes / 16  # a 512-bit instruction takes two halves
    if isa.dots_bytes:
        return Rates(dot=width, load=width, operand=0.0, shuffle=1.3 * width, latency=4.0)
    return Rates(dot=2.5 * width, load=width, operand=width, shuffle=1.3 * width, latency=4.0)


def cycles(isa: Isa, layer: Layer, tile: Tile, epilogue_cycles: float) -> float:
    """Estimated cycles of the whole layer on one core.

    Args:
        epilogue_cycles: for one vector of accumulators.
    """
    reduction = Reduction(layer)
    steps = reduction.groups * reduction.positions[0] * reduction.positions[1]
    return tile_cycles(isa, layer, tile, steps, rates(isa).operand, epilogue_cycles)


def tile_cycles(
    isa: Isa, layer: Layer, tile: Tile, steps: float, operand_cycles: float, epilogue_cycles: float
) -> float:
    """Estimated cycles of a layer that is computed tile by tile.

    Args:
        steps: of one tile's reduction; each multiplies one operand of every pixel with the weights of every block.
        operand_cycles: for an operand, besides loading it.
        epilogue_cycles: for one vector of accumulators.
    """
    rate, pixels, blocks = rates(isa), tile.rows * tile.columns, tile.blocks
    vectors = blocks * isa.weight_vectors
    far = steps * vectors * isa.bytes > NEAR_BYTES
    loads = (pixels + vectors * (_FAR_LOADS if far else 1)) * rate.load
    work = pixels * (blocks * rate.dot + operand_cycles)
    # Loads and products overlap, but not wholly.
    step = max(work, loads, rate.latency) + 0.08 * min(work, loads)
    return _tiles(layer, tile) * (steps * step + _stored(tile) * blocks * epilogue_cycles + TILE_CYCLES)


def _stored(tile: Tile) -> int:
    """Pixels of a block that are requantized: by fours where there are as many, and one alone costs twice."""
    pixels = tile.rows * tile.columns
    if tile.columns >= PIXELS:
        return tile.rows * -(-tile.columns // PIXELS) * PIXELS
    return -(-pixels // PIXELS) * PIXELS if pixels >= PIXELS else 2 * pixels


def choose(isa: Isa, layer: Layer, epilogue_cycles: float) -> Tile:
    """The tile with the least estimated cycles."""
    return min(candidates(isa, layer), key=lambda tile: cycles(isa, layer, tile, epilogue_cycles))


def ranked(isa: Isa, layer: Layer, epilogue_cycles: float) -> list[Tile]:
    """The candidates, the one with the least estimated cycles first."""
    return sorted(candidates(isa, layer), key=lambda tile: cycles(isa, layer, tile, epilogue_cycles))


def key_of(isa: Isa, layer: Layer, epilogue_cycles: float, groups: int = 1) -> str:
    """Names all that decides which tile is fastest: the instructions, the geometry, and what follows a sum."""
    parts = {"isa": isa.name, "layer": asdict(layer), "epilogue_cycles": epilogue_cycles}
    return digest_of_json(parts if groups == 1 else {**parts, "groups": groups})


def candidates(isa: Isa, layer: Layer) -> Iterator[Tile]:
    """The tiles whose accumulators, weights and one operand fit the registers."""
    height, width = layer.output
    most_rows = min(_MOST_ROWS if width > 1 else _MOST_COLUMNS, height)
    for blocks in range(1, min(_MOST_BLOCKS, layer.destination.blocks) + 1):
        for rows in range(1, most_rows + 1):
            for columns in range(1, min(_MOST_COLUMNS, width) + 1):
                if rows > 1 and columns < width:
                    continue  # a tile of several rows spans them
                held = rows * columns * blocks + (blocks + 1) * isa.weight_vectors
                if held <= isa.registers:
                    yield Tile(rows, columns, blocks)


def worth_sharing(estimated_cycles: float) -> bool:
    """Whether a kernel runs long enough for several threads."""
    return estimated_cycles > _SHARING_CYCLES


def _tiles(layer: Layer, tile: Tile) -> int:
    height, width = layer.output
    spatial = -(-height // tile.rows) * -(-width // tile.columns)
    return layer.source.batch * spatial * -(-layer.destination.blocks // tile.blocks)
