"""The cost model chooses between tiles and vectors."""

from __future__ import annotations

import pytest

from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Image
from service.compiler.kernels.simd.convolution.matrix_schemes import ranked
from service.compiler.kernels.simd.convolution.tiles import choose, cycles
from service.compiler.kernels.x86.amx import AMX
from tests.support.matrix_layers import ISA, layer_of


@pytest.mark.parametrize(("size", "channels", "kernel"), [(56, 64, 1), (56, 64, 3), (14, 256, 3), (7, 512, 1)])
def test_large_layers_are_estimated_to_be_faster_on_tiles(size: int, channels: int, kernel: int) -> None:
    layer = layer_of(size, channels, kernel)
    of_vectors = AMX.rates.vector * cycles(ISA, layer, choose(ISA, layer, 2.0), 2.0)
    assert ranked(ISA, layer, 2.0)[0][0] < of_vectors


def test_one_pixel_is_estimated_to_be_faster_on_vectors() -> None:
    image = Image(1, 1, 1, 64, ISA.lanes)
    layer = Layer(image, image, Window((1, 1)))
    of_vectors = AMX.rates.vector * cycles(ISA, layer, choose(ISA, layer, 2.0), 2.0)
    assert ranked(ISA, layer, 2.0)[0][0] > of_vectors
