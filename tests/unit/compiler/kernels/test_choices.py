"""Tiles are chosen by a table, by a rank, or by the cost model."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.choices import Choices
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS, library_for
from service.compiler.kernels.simd.convolution.tiles import choose, key_of, ranked
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.select.select import select
from service.core.builds.numerics import XNNPACK
from service.core.errors import InvalidInput
from service.core.target import parse_target
from tests.support.qnn_models import Emit, module_of

RANKED = [(1, 14, 2), (1, 7, 4), (2, 7, 2)]


def layer(width: int = 14) -> Layer:
    source = Image(1, 14, width, 64, 16, Halo(1, 1, 1, 1))
    return Layer(source, Image(1, 14, width, 128, 16), Window((3, 3), padding=(1, 1)))


def test_without_a_table_the_cost_model_decides() -> None:
    assert Choices().choose("layer", RANKED) == RANKED[0]


def test_a_rank_selects_another_candidate_and_at_most_the_last() -> None:
    assert [Choices(rank=rank).choose("layer", RANKED) for rank in range(5)] == [*RANKED, RANKED[2], RANKED[2]]


def test_a_table_applies_only_to_its_layers() -> None:
    choices = Choices({"layer": [2, 7, 2]}, rank=1)
    assert choices.choose("layer", RANKED) == (2, 7, 2)
    assert choices.choose("another", RANKED) == RANKED[1]


def test_a_tile_of_a_table_must_be_a_candidate() -> None:
    with pytest.raises(InvalidInput, match="not a valid tile for layer"):
        Choices({"layer": [28, 28, 8]}).choose("layer", RANKED)


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
def test_the_first_rank_is_the_choice_of_the_cost_model(isa: object) -> None:
    tiles = ranked(isa, layer(), 2.0)  # type: ignore[arg-type]
    assert tiles[0] == choose(isa, layer(), 2.0)  # type: ignore[arg-type]
    assert len(set(tiles)) == len(tiles) > 8


def test_every_kind_of_convolution_is_a_choice() -> None:
    """Ordinary, grouped and depthwise layers of the same geometry have different keys. Each has several tiles."""
    kind = QuantizedType("int8", (0.1,), (0,))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        x = inputs[0]
        for groups in (1, 4, 32):
            weights = relax.const(np.ones((32, 3, 3, 32 // groups), np.int8))
            sums = emit(ops.conv2d(x, weights, None, kind, kind, padding=(1, 1, 1, 1), groups=groups))
            x = emit(ops.requantize(sums, accumulator_type(kind, kind, axis=3), kind))
        return x

    module, target = module_of([((1, 14, 14, 32), "int8")], body), parse_target("x86-64-v4+vnni")
    made = []
    for rank in range(3):
        choices = Choices(rank=rank)
        select(module, library_for(target, get_mode(XNNPACK), choices))
        made.append(choices.choices)
    keys = [[each.key for each in of_rank] for of_rank in made]
    tiles = [[each.tile for each in of_rank] for of_rank in made]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[0])) == 3
    assert all(len(set(of_layer)) == 3 for of_layer in zip(*tiles, strict=True))
    known = dict(zip(keys[2], tiles[2], strict=True))
    choices = Choices(known)
    select(module, library_for(target, get_mode(XNNPACK), choices))
    assert choices.choices == made[2]


def test_a_key_names_geometry_instructions_and_epilogue() -> None:
    first, second, *_ = ISAS.values()
    keys = [key_of(first, layer(), 2.0), key_of(second, layer(), 2.0), key_of(first, layer(28), 2.0)]
    assert len({*keys, key_of(first, layer(), 6.0)}) == 4
    assert key_of(first, layer(), 2.0) == keys[0]
