"""Tiles of a layer whose length is bound at a call are good for every length."""

from __future__ import annotations

from math import ceil

import pytest

from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.convolution import matrix_schemes, tiles
from service.compiler.kernels.vector.isa import Isa

LENGTHS = (512, 256, 128, 64, 32, 16)
EPILOGUE_CYCLES = 2.0
MOST = 1.15  # times as slow as the best tile for a length


def layer(isa: Isa, tokens: int, channels: int, filters: int) -> Layer:
    images = [Image(1, tokens, 1, count, isa.lanes) for count in (channels, filters)]
    return Layer(images[0], images[1], Window((1, 1)))


@pytest.mark.parametrize(("channels", "filters"), [(384, 384), (384, 1536), (1536, 384)])
@pytest.mark.parametrize("name", ISAS)
def test_a_tile_is_almost_as_fast_as_the_best_one_for_each_length(name: str, channels: int, filters: int) -> None:
    isa = ISAS[name]
    tile = tiles.ranked(isa, layer(isa, 512, channels, filters), EPILOGUE_CYCLES, LENGTHS)[0]
    for length in LENGTHS:
        own = layer(isa, length, channels, filters)
        best = tiles.ranked(isa, own, EPILOGUE_CYCLES)[0]
        least = tiles.cycles(isa, own, best, EPILOGUE_CYCLES)
        assert tiles.cycles(isa, own, tile, EPILOGUE_CYCLES) <= MOST * least


@pytest.mark.parametrize(("channels", "filters"), [(384, 384), (384, 1536), (1536, 384)])
def test_panels_are_short_enough_for_each_length(channels: int, filters: int) -> None:
    """A panel of 128 pixels would be computed for 16 tokens too."""
    isa = ISAS["x86-64-v4+amx"]
    whole = layer(isa, 512, channels, filters)
    cost, scheme = matrix_schemes.ranked(isa, whole, EPILOGUE_CYCLES, LENGTHS)[0]
    for length in LENGTHS:
        least, _ = matrix_schemes.ranked(isa, layer(isa, length, channels, filters), EPILOGUE_CYCLES)[0]
        assert cost * ceil(length / scheme.columns) / ceil(512 / scheme.columns) <= MOST * least


def test_tuned_tiles_of_a_layer_with_one_length_are_not_used_for_all_lengths() -> None:
    isa = ISAS["x86-64-v4+vnni"]
    own = layer(isa, 512, 384, 384)
    assert tiles.key_of(isa, own, EPILOGUE_CYCLES) != tiles.key_of(isa, own, EPILOGUE_CYCLES, lengths=LENGTHS)
