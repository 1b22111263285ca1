"""Convolutions and dense layers for GPUs equal the oracle of every mode, bit for bit. Their CUDA source is emulated."""

from __future__ import annotations

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.tiles import GpuTile, Unit, ranked
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import get_mode
from tests.support.cuda.cards import as_isa
from tests.support.examples import examples
from tests.support.layers import Case, convolution, dense
from tests.support.qnn_models import STORED_MODES

# Failing examples are not shrunk, because each example compiles a kernel.
EXAMPLES = settings(max_examples=examples(12), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
SMALL = {
    "sm_61": GpuTile(32, 32, 4, 2, 2, 2, 2, Unit.DOT),
    "sm_75": GpuTile(32, 32, 16, 16, 2, 2, 4, Unit.MATRIX),
    "sm_80": GpuTile(64, 32, 32, 16, 2, 3, 1, Unit.MATRIX),
    "sm_90": GpuTile(64, 32, 64, 32, 2, 3, 2, Unit.GROUP),
}
capabilities = st.sampled_from(sorted(SMALL))


def holds(capability: str, case: Case, tile: GpuTile, groups: int = 1) -> None:
    try:
        kernel = conv(case.layer, case.weights, groups, case.bias, case.epilogue, tile)
    except Declined:
        assume(False)
    case.check(as_isa(capability), kernel)


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), capabilities)
def test_convolution(data: st.DataObject, mode: str, capability: str) -> None:
    holds(capability, convolution(data.draw, as_isa(capability), get_mode(mode)), SMALL[capability])


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), capabilities)
def test_dense(data: st.DataObject, mode: str, capability: str) -> None:
    holds(capability, dense(data.draw, as_isa(capability), get_mode(mode)), SMALL[capability])


@pytest.mark.parametrize("capability", sorted(GPUS))
def test_every_candidate_tile_fits_the_gpu(capability: str) -> None:
    gpu = GPUS[capability]
    assert all(tile.threads <= 512 for tile in ranked(gpu, *_large()))
    assert all(tile.shared_bytes(_large()[1]) <= gpu.block_shared_bytes for tile in ranked(gpu, *_large()))


def _large() -> tuple[Layer, int]:
    """Returns a layer of ResNet-50, and the number of steps of its reduction."""
    source, destination = Image(64, 14, 14, 1024, 32), Image(64, 14, 14, 256, 32)
    return Layer(source, destination, Window((1, 1))), 32
