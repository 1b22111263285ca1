"""The kernels of depthwise convolutions equal the oracle of every mode, bit for bit, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.arithmetic.epilogue import Bounds, Epilogue
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.convolution.accumulators import Tile
from service.compiler.kernels.simd.convolution.depthwise import depthwise, ranked
from service.compiler.kernels.vector.isa import PIXELS, Isa
from service.compiler.qnn.expressions.requantization import FloatScale
from service.compiler.qnn.numerics import get_mode
from tests.support.examples import examples
from tests.support.images import RUNNABLE, Draw, at_a_wall, built
from tests.support.layers import Case, convolution
from tests.support.qnn_models import STORED_MODES

import tvm  # isort: skip

runs_here = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
RUNNING = st.sampled_from(RUNNABLE or list(ISAS.values()))
# Failing examples are not shrunk, because each example compiles a kernel.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
HALO = Halo(1, 1, 1, 1)


def holds(draw: Draw, isa: Isa, case: Case) -> Kernel:
    height, width = case.layer.destination.height, case.layer.destination.width
    drawn = Tile(draw(st.integers(1, min(3, height))), draw(st.integers(1, min(9, width))), 1)
    tile = draw(st.sampled_from([*ranked(isa, case.layer)[:9], drawn]))
    arguments = (case.weights[..., 0], case.bias, case.epilogue, tile)
    kernel = depthwise(isa, case.layer, *arguments, parallel=draw(st.booleans()))
    case.check(isa, kernel)
    return kernel


@runs_here
@settings(max_examples=examples(35), deadline=None, phases=PHASES)
@given(st.data(), st.sampled_from(STORED_MODES), RUNNING)
def test_depthwise(data: st.DataObject, mode: str, isa: Isa) -> None:
    holds(data.draw, isa, convolution(data.draw, isa, get_mode(mode), depthwise=True))


@runs_here
@settings(max_examples=5, deadline=None, phases=PHASES)
@given(st.data(), st.sampled_from(STORED_MODES), RUNNING)
def test_a_kernel_too_large_to_unroll(data: st.DataObject, mode: str, isa: Isa) -> None:
    holds(data.draw, isa, convolution(data.draw, isa, get_mode(mode), depthwise=True, kernel=(23, 23)))


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from([(1, 1), (3, 3), (5, 5), (1, 7), (31, 31)]), st.integers(1, 30), st.integers(1, 30))
def test_the_chosen_tile_fits_the_output(isa: Isa, kernel: tuple[int, int], height: int, width: int) -> None:
    layer = Layer(Image(1, 99, 99, 8, isa.lanes), Image(1, height, width, 8, isa.lanes), Window(kernel))
    tile = ranked(isa, layer)[0]
    assert 1 <= tile.rows <= height
    assert min(PIXELS, width) <= tile.columns <= width


def small(isa: Isa, *, weight: int = 7, out: Bounds | None = None, packed: bool = False) -> Kernel:
    """Returns the kernel of a 3x3 convolution on 8x8 pixels of 16 channels. Both images have a halo."""
    source, destination = Image(1, 8, 8, 16, 0 if packed else isa.lanes, HALO), Image(1, 8, 8, 16, isa.lanes, HALO)
    layer = Layer(source, destination, Window((3, 3), padding=(1, 1)))
    epilogue = Epilogue(FloatScale(np.full(16, 0.01, np.float32), bounded=True), out or Bounds(3))
    arguments = (np.full((16, 3, 3), weight), np.zeros(16, np.int32), epilogue, ranked(isa, layer)[0])
    return depthwise(isa, layer, *arguments, parallel=False)


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
def test_layers_that_differ_in_numbers_share_their_code(isa: Isa) -> None:
    assert small(isa).content == small(isa, weight=-3, out=Bounds(200)).content


def test_a_packed_source_is_declined() -> None:
    with pytest.raises(Declined, match="blocks of channels"):
        small(ISAS["x86-64-v3"], packed=True)


@runs_here
@pytest.mark.parametrize("isa", RUNNABLE, ids=[isa.name for isa in RUNNABLE])
def test_memory_after_a_buffer_is_not_accessed(isa: Isa) -> None:
    """A kernel that accesses memory after the end of a buffer crashes the test run."""
    kernel = small(isa)
    source, destination = (at_a_wall(kernel.output_bytes, "uint8") for _ in range(2))
    source[:] = 1
    arguments = [tvm.runtime.tensor(constant) for constant in kernel.constants]
    built(isa, kernel)(tvm.runtime.from_dlpack(source), *arguments, tvm.runtime.from_dlpack(destination))
    assert destination[0] == 3
