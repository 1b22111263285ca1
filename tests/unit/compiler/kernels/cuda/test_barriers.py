"""Each barrier and wait of the convolution is needed, and the emulation reports a fault if one is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.compiler.kernels.cuda.operators.conv import conv
from service.compiler.kernels.cuda.tiles import GpuTile, Unit
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from tests.support.cuda.layers import SquareConvolution
from tests.support.images import laid_out
from tools.cuda_emulator.emulated_kernel import EmulatedKernel
from tools.cuda_emulator.errors import DeviceFault

LAYER = SquareConvolution(images=3, size=5, channels=40, filters=70)
TEAMS = GpuTile(64, 32, 32, 16, 2, 3, 2, Unit.MATRIX)  # Two slices of the reduction, whose sums are added.
# A layer that adds a residual, and a tile that multiplies asynchronously with `wgmma`.
ADDING, ALONE = replace(LAYER, adds=True), GpuTile(64, 32, 64, 32, 2, 4, 1, Unit.GROUP)
CASES = [(LAYER, TEAMS), (ADDING, ALONE)]


def kernel_of(layer: SquareConvolution, tile: GpuTile) -> Kernel:
    return conv(layer.layer, layer.weights, 1, layer.bias, layer.epilogue, tile, most_blocks=2)


def source_of(layer: SquareConvolution, tile: GpuTile) -> str:
    function = kernel_of(layer, tile).function
    assert isinstance(function, DeviceFunction)
    return function.source


def launch(layer: SquareConvolution, tile: GpuTile, source: str) -> None:
    kernel = kernel_of(layer, tile)
    assert kernel.launch is not None
    given = [laid_out(layer.layer.source, layer.source)]
    if layer.adds:
        given.append(laid_out(layer.layer.destination, layer.residual))
    operands: list[NDArray[Any]] = [*given, *kernel.constants, np.zeros(kernel.output_bytes, np.uint8)]
    emulated = EmulatedKernel(source, "OCTET_KERNEL", architecture="sm_90")
    emulated.launch(kernel.launch.grid, kernel.launch.block, kernel.launch.shared_bytes, operands)


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_as_it_is_has_no_fault(case: tuple[SquareConvolution, GpuTile]) -> None:
    launch(*case, source_of(*case))


_BARRIER = re.compile(r"__syncthreads\(\);")
# The text before the barriers that are compiled only for GPUs without asynchronous copies.
_WAITING = ("wait_for_copies<0>();\n        ", "if (!Layer::kContinues && goes_on) {\n      ")
# The text shortly before the barrier that is compiled only for several slices.
_SUMS = "if (slice_ > 0) sums"


def barriers_of(layer: SquareConvolution, tile: GpuTile) -> Iterator[tuple[int, int]]:
    """Yields, for each barrier that is compiled for this layer, its start and end in the source text."""
    source = source_of(layer, tile)
    for match in _BARRIER.finditer(source):
        before = source[: match.start()]
        if (tile.slices > 1 or _SUMS not in before[-200:]) and not before.endswith(_WAITING):
            yield match.span()


@pytest.mark.parametrize(("case", "barrier"), [(case, each) for case in CASES for each in barriers_of(*case)])
def test_without_a_barrier_there_is_a_fault(case: tuple[SquareConvolution, GpuTile], barrier: tuple[int, int]) -> None:
    """The fault is a race, or a read at an offset that was loaded too early from shared memory, whose initial bytes are
    random."""
    source, (start, end) = source_of(*case), barrier
    with pytest.raises(
        DeviceFault, match=r"a race|in flight|not aligned|at an address far from every operand|fence.proxy"
    ):
        launch(*case, f"{source[:start]};{source[end:]}")


@pytest.mark.parametrize(
    ("case", "right", "wrong"),
    [
        (
            CASES[0],
            "wait_for_copies<kAhead - 1>();",
            "wait_for_copies<kAhead>();",
        ),  # Waits for too few copies.
        (CASES[0], "ahead % kStages", "(ahead + 1) % kStages"),  # Copies into the stage that threads are reading.
        (CASES[1], "kStages - 1 - Math::kInFlight", "kStages - 1"),  # Copies into a stage that products still read.
        (CASES[1], "void publish() const { publish_operands(); }", "void publish() const {}"),
    ],
)
def test_a_missing_wait_is_a_fault(case: tuple[SquareConvolution, GpuTile], right: str, wrong: str) -> None:
    source = source_of(*case)
    assert right in source
    with pytest.raises(DeviceFault, match=r"a race|in flight|overwritten|fence.proxy"):
        launch(*case, source.replace(right, wrong, 1))
