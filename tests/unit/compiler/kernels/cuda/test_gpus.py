"""The common limits of several GPUs: tiles that fit them fit each GPU, and kernels compute the same on each."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from service.compiler.kernels.cuda.gpus import GPUS, common
from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.tiles import ranked
from service.compiler.targets import codegen_target
from service.core.target import TARGETS, Target
from tests.support.cuda.cards import as_isa
from tests.support.cuda.layers import SquareConvolution
from tests.support.images import laid_out, read_back, run

SEVERAL = [target for target in TARGETS if target.device == "cuda" and len(target.features) > 1]
LAYER = SquareConvolution(images=1, size=5, channels=40, filters=70)
READS = 18


@pytest.mark.parametrize("capability", sorted(GPUS))
def test_a_single_gpu_has_its_own_limits(capability: str) -> None:
    assert common((capability,)) == GPUS[capability]


@pytest.mark.parametrize("target", SEVERAL, ids=str)
def test_no_common_limit_exceeds_that_of_a_gpu(target: Target) -> None:
    gpus = codegen_target(target).cards
    gpu = common(gpus)
    for each in gpus:
        assert all(own <= of_gpu for own, of_gpu in zip(astuple(gpu)[1:], astuple(GPUS[each])[1:], strict=True))
        assert gpu.copies_ahead <= GPUS[each].copies_ahead
        of_layer = ranked(gpu, LAYER.layer, READS)
        assert of_layer
        assert all(tile.shared_bytes(READS) <= GPUS[each].block_shared_bytes for tile in of_layer)


@pytest.mark.parametrize("capability", ["sm_75", "sm_80", "sm_90"])
def test_a_tile_for_several_computes_the_convolution_on_each(capability: str) -> None:
    tile = ranked(common(("sm_75", "sm_80", "sm_90")), LAYER.layer, READS)[0]
    kernel = conv(LAYER.layer, LAYER.weights, 1, LAYER.bias, LAYER.epilogue, tile)
    written = run(as_isa(capability), kernel, laid_out(LAYER.layer.source, LAYER.source))
    np.testing.assert_array_equal(read_back(LAYER.layer.destination, written)[..., : LAYER.filters], LAYER.expected)
