"""Each barrier and wait of the convolution is needed, and the emulation notices where one is missing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.compiler.kernels.cuda.conv import conv
from service.compiler.kernels.cuda.tiles import CardTile
from service.compiler.kernels.kernel import DeviceFunction
from tests.support.cuda.emulated import EmulatedKernel
from tests.support.cuda.errors import DeviceFault
from tests.support.cuda.layers import SquareConvolution
from tests.support.images import laid_out

LAYER = SquareConvolution(images=3, size=5, channels=40, filters=70)
TILE = CardTile(64, 32, 32, 16, 2, 3, 2, matrix=True)  # two teams, so that sums are exchanged


def source_and_operands() -> tuple[str, list[NDArray[Any]]]:
    kernel = conv(LAYER.layer, LAYER.weights, 1, LAYER.bias, LAYER.epilogue, TILE)
    assert isinstance(kernel.function, DeviceFunction)
    output = np.zeros(kernel.output_bytes, np.uint8)
    return kernel.function.source, [laid_out(LAYER.layer.source, LAYER.source), *kernel.constants, output]


SOURCE, _ = source_and_operands()
_BARRIERS = [match.span() for match in re.finditer(r"__syncthreads\(\);", SOURCE)]


def launch(source: str) -> None:
    kernel = conv(LAYER.layer, LAYER.weights, 1, LAYER.bias, LAYER.epilogue, TILE)
    assert kernel.launch is not None
    launched, (_, operands) = kernel.launch, source_and_operands()
    emulated = EmulatedKernel(source, "OCTET_KERNEL")
    emulated.launch(launched.grid, launched.block, launched.shared_bytes, operands)


def test_the_kernel_as_it_is_has_no_fault() -> None:
    launch(SOURCE)


@pytest.mark.parametrize("barrier", range(len(_BARRIERS)))
def test_without_a_barrier_there_is_a_fault(barrier: int) -> None:
    """A race, or an offset that is not there yet: shared memory holds rubbish at first."""
    start, end = _BARRIERS[barrier]
    with pytest.raises(DeviceFault, match=r"a race|in flight|not aligned|at an address of nothing"):
        launch(SOURCE[:start] + SOURCE[end:])


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("wait_for_copies<kStages - 2>();", "wait_for_copies<kStages - 1>();"),  # a group too few
        ("ahead % kStages", "(ahead + 1) % kStages"),  # into the stage that is being read
    ],
)
def test_copies_that_are_not_waited_for(right: str, wrong: str) -> None:
    assert right in SOURCE
    with pytest.raises(DeviceFault, match=r"a race|in flight"):
        launch(SOURCE.replace(right, wrong, 1))
