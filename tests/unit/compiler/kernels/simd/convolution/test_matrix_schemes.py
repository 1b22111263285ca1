"""The schemes of matrix tiles by target."""

from __future__ import annotations

from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.convolution.matrix_schemes import ranked
from tests.support.matrix_layers import NAME, layer_of


def test_other_targets_have_no_tiles() -> None:
    layer = layer_of(14, 64, 1)
    assert [name for name, isa in ISAS.items() if ranked(isa, layer, 2.0)] == [NAME]
