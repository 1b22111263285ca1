"""The cost model of convolutions, which chooses the tile of accumulators in registers.

The model estimates the cycles of one core from the throughput of instructions (`Isa.rates`). The estimates only need to
rank the candidates correctly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from service.compiler.kernels.layer import Layer
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.convolution.reduction import Reduction, pairs_of
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.core.digest import digest_of_json

_MOST_COLUMNS, _MOST_ROWS, _MOST_BLOCKS = 28, 4, 8


def cycles(isa: Isa, layer: Layer, tile: Tile, epilogue_cycles: float) -> float:
    """Estimates the cycles of the whole layer on one core.

    Args:
        epilogue_cycles: the cycles of the epilogue for one vector of accumulators.
    """
    pairs = pairs_of(isa, layer, tile.columns)
    reduction = Reduction(isa, layer, pairs.depth if pairs else None)
    steps = reduction.groups * reduction.positions[0] * reduction.positions[1]
    return tile_cycles(isa, layer, tile, steps, isa.rates.operand, epilogue_cycles, paired=pairs is not None)


def tile_cycles(
    isa: Isa,
    layer: Layer,
    tile: Tile,
    steps: float,
    operand_cycles: float,
    epilogue_cycles: float,
    *,
    paired: bool = False,
) -> float:
    """Estimates the cycles of a layer that is computed tile by tile.

    Args:
        steps: the number of steps of one tile's reduction. Each step multiplies one operand of every pixel by the
            weights of every block.
        operand_cycles: the cycles to prepare an operand after its load.
        epilogue_cycles: the cycles of the epilogue for one vector of accumulators.
        paired: true for instructions on pairs of pixels (`isa.Pairs`). An operand then contains two blocks of two
            pixels, which are loaded separately.
    """
    rate, blocks = isa.rates, tile.blocks
    pixels = tile.rows * (tile.columns + (tile.columns % 2 if paired else 0))
    vectors = blocks * (2 if paired else isa.weight_vectors)
    far = steps * vectors * isa.bytes > rate.near_bytes
    together = rate.together if layer.steps[1] == isa.group else 1
    operands = tile.rows * -(-tile.columns // together)
    if paired:
        operands, operand_cycles = 2 * operands, rate.dot
    loads = (operands + vectors * (rate.far_load if far else 1)) * rate.load
    work = pixels * blocks * rate.dot + operands * operand_cycles
    # Loads and products overlap, but a part of the shorter of the two is not hidden.
    step = max(work, loads, rate.latency) + rate.overlap * min(work, loads)
    return _tiles(layer, tile) * (steps * step + _stored(tile) * blocks * epilogue_cycles + rate.tile)


def _stored(tile: Tile) -> int:
    """Returns the cost of requantizing one block of a tile, as a number of pixels.

    Pixels are requantized four at a time if possible. A pixel that is requantized alone counts as two.
    """
    pixels = tile.rows * tile.columns
    if tile.columns >= PIXELS:
        return tile.rows * -(-tile.columns // PIXELS) * PIXELS
    return -(-pixels // PIXELS) * PIXELS if pixels >= PIXELS else 2 * pixels


def choose(isa: Isa, layer: Layer, epilogue_cycles: float) -> Tile:
    """Returns the tile with the fewest estimated cycles."""
    return min(candidates(isa, layer), key=lambda tile: cycles(isa, layer, tile, epilogue_cycles))


def ranked(isa: Isa, layer: Layer, epilogue_cycles: float, lengths: Sequence[int] = ()) -> list[Tile]:
    """Returns the candidates, the one with the fewest estimated cycles first.

    Args:
        lengths: the numbers of pixels to choose for, if the layer computes only the first pixels of its output. The
            first candidate is then the one that is at most a little slower than the best one for any of them.
    """
    tiles = list(candidates(isa, layer))
    excess = dict.fromkeys(tiles, 1.0)
    for part in [layer.narrowed(each) for each in lengths] or [layer]:
        own = {tile: cycles(isa, part, tile, epilogue_cycles) for tile in tiles}
        least = min(own.values(), default=1.0)
        excess = {tile: max(excess[tile], own[tile] / least) for tile in tiles}
    return sorted(tiles, key=lambda tile: excess[tile])


def key_of(isa: Isa, layer: Layer, epilogue_cycles: float, groups: int = 1, lengths: Sequence[int] = ()) -> str:
    """Returns a digest of everything that determines the fastest tile: instructions, geometry and epilogue."""
    parts: dict[str, Any] = {"isa": isa.name, "layer": asdict(layer), "epilogue_cycles": epilogue_cycles}
    if groups > 1:
        parts["groups"] = groups
    if lengths:
        parts["lengths"] = list(lengths)
    return digest_of_json(parts)


def candidates(isa: Isa, layer: Layer) -> Iterator[Tile]:
    """Yields the tiles for which the accumulators, the weights of one step and one operand fit the registers."""
    height, width = layer.output
    most_rows = min(_MOST_ROWS if width > 1 else _MOST_COLUMNS, height)
    for blocks in range(1, min(_MOST_BLOCKS, layer.destination.blocks) + 1):
        for rows in range(1, most_rows + 1):
            for columns in range(1, min(_MOST_COLUMNS, width) + 1):
                if rows > 1 and columns < width:
                    continue  # a tile with several rows must include whole rows
                paired = pairs_of(isa, layer, columns) is not None
                across, vectors = columns + columns % 2 if paired else columns, 2 if paired else isa.weight_vectors
                held = rows * across * blocks + (blocks + 1) * vectors
                if held <= isa.registers:
                    yield Tile(rows, columns, blocks)


def _tiles(layer: Layer, tile: Tile) -> int:
    height, width = layer.output
    spatial = -(-height // tile.rows) * -(-width // tile.columns)
    return layer.source.batch * spatial * -(-layer.destination.blocks // tile.blocks)
