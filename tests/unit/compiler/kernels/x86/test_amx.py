"""Tiles of AMX."""

from __future__ import annotations

import pytest

from service.compiler.kernels.simd.convolution.matrix_schemes import tile_rows
from service.compiler.kernels.x86.amx import AMX


@pytest.mark.parametrize("pixel_tiles", [1, 2, 4])
def test_groups_of_tiles_stay_inside_their_panel(pixel_tiles: int) -> None:
    for pixels in range(4, 130):
        assert 1 <= tile_rows(AMX, pixels, pixel_tiles) <= min(AMX.rows, pixels // pixel_tiles)
