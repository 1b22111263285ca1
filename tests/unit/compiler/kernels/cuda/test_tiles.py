"""Every tile size that the cost model may choose computes the convolution, emulated with detection of races.

The pixels, filters and channels do not fill the last tile.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.tiles import GpuTile, Unit, promising, ranked
from tests.support.cuda.cards import as_isa
from tests.support.cuda.layers import SquareConvolution
from tests.support.images import laid_out, read_back, run

# 75 pixels; 9 kernel taps, each with 2 blocks of channels; 5 blocks of filters.
LAYER = SquareConvolution(images=3, size=5, channels=40, filters=140, adds=True)


def each_once() -> list[tuple[str, GpuTile]]:
    """Returns one tile of each size, for each GPU. Together, they have all numbers of steps, stages and slices."""
    found = []
    for capability in ("sm_61", "sm_75", "sm_80", "sm_90"):
        of_size: dict[tuple[int, ...], list[GpuTile]] = {}
        found_tiles = ranked(GPUS[capability], LAYER.layer, 18, _newest(capability))
        for tile in sorted(found_tiles, key=lambda tile: tile.numbers):
            of_size.setdefault(tile.numbers[:4], []).append(tile)
        found += [(capability, tiles[index % len(tiles)]) for index, tiles in enumerate(of_size.values())]
    return found


def _newest(capability: str) -> list[Unit]:
    """Returns the GPU's newest type of multiply instruction, as a list of one element."""
    return promising(GPUS[capability])[:1]


def test_the_tiles_have_every_number_of_steps_stages_and_slices() -> None:
    tiles = [tile for capability, tile in each_once() if capability in ("sm_80", "sm_90")]
    assert {tile.unit for tile in tiles} == {Unit.MATRIX, Unit.GROUP}
    assert {tile.steps for tile in tiles} == {2, 4}
    assert {tile.stages for tile in tiles} == {3, 4, 8}
    assert {tile.slices for tile in tiles} == {1, 2, 4}


@pytest.mark.parametrize(
    ("capability", "tile"),
    [
        pytest.param(
            capability,
            tile,
            id="-".join(map(str, (capability, *tile.numbers))),
            marks=[pytest.mark.slow] * (capability == "sm_75"),  # tests of sm_80 cover the same instructions
        )
        for capability, tile in each_once()
    ],
)
def test_a_tile_computes_the_convolution(capability: str, tile: GpuTile) -> None:
    kernel = conv(LAYER.layer, LAYER.weights, 1, LAYER.bias, LAYER.epilogue, tile, most_blocks=3)
    given = laid_out(LAYER.layer.source, LAYER.source), laid_out(LAYER.layer.destination, LAYER.residual)
    written = run(as_isa(capability), kernel, *given)
    np.testing.assert_array_equal(read_back(LAYER.layer.destination, written)[..., : LAYER.filters], LAYER.expected)
