"""The tile of a product is good for every length of the input."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm import relax

from service.compiler.kernels.group import Length
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.simd.float.tiles import Geometry, cycles, key_of, ranked
from service.compiler.kernels.simd.library import SimdLibrary
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.target import TARGETS, Target

VAR = relax.Var("length", relax.TensorType([1], "int32"))


def layer(rows: int) -> Geometry:
    return Geometry((), (1, rows), (0, 384), (0, 1536), ((1, 0), (1, 0)), 384, 1536)


def isa_of(target: Target) -> Isa:
    library = library_for(target, get_mode(ONNXRUNTIME))
    assert isinstance(library, SimdLibrary)
    return library.isa


@pytest.mark.parametrize("target", [target for target in TARGETS if target.device == "cpu"], ids=str)
@pytest.mark.parametrize("longest", [128, 500, 512])
def test_a_tile_is_almost_as_fast_as_the_best_one_for_each_length(target: Target, longest: int) -> None:
    isa = isa_of(target)
    length = Length(VAR, rows=True)
    tile = ranked(isa, layer(longest), length=length)[0]
    for rows, _, _ in length.shares(longest, 1536, 384):
        part = replace(layer(longest), grid=(1, rows))
        assert cycles(isa, part, tile) <= 1.15 * cycles(isa, part, ranked(isa, part)[0])


def test_tuned_tiles_of_a_layer_with_one_length_are_not_used_for_all_lengths() -> None:
    keys = {
        key_of(isa_of(TARGETS[0]), layer(512), 0, each)
        for each in (None, Length(VAR, rows=True), Length(VAR, depth=True))
    }
    assert len(keys) == 3
