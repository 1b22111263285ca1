"""The kernels of convolutions and dense layers equal the oracle of every mode, bit for bit, on every instruction
set."""

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
from service.compiler.kernels.simd.convolution.conv import conv
from service.compiler.kernels.simd.convolution.reduction import Excess, pairs_of
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.expressions.requantization import FloatScale
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from tests.support.examples import examples
from tests.support.images import RUNNABLE, Draw, at_a_wall, built
from tests.support.layers import Case, convolution, dense
from tests.support.qnn_models import STORED_MODES

import tvm  # isort: skip

runs_here = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
# Failing examples are not shrunk, because each example compiles a kernel.
EXAMPLES = settings(max_examples=examples(30), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
PAIRED = [isa for isa in RUNNABLE if isa.pairs]
RUNNING = st.sampled_from(RUNNABLE or list(ISAS.values()))


def tile(draw: Draw, layer: Layer) -> Tile:
    """Draws any tile that fits the output, even if it does not fit the registers."""
    (height, width), blocks = layer.output, layer.destination.blocks
    rows, columns, deep = (draw(st.integers(1, min(pair))) for pair in ((2, height), (7, width), (2, blocks)))
    return Tile(rows, columns, deep)


def holds(draw: Draw, isa: Isa, case: Case) -> None:
    chosen, parallel = tile(draw, case.layer), draw(st.booleans())
    kernel = conv(isa, case.layer, case.weights, case.bias, case.epilogue, chosen, parallel=parallel)
    case.check(isa, kernel)


@runs_here
@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), RUNNING)
def test_convolution(data: st.DataObject, mode: str, isa: Isa) -> None:
    holds(data.draw, isa, convolution(data.draw, isa, get_mode(mode)))


@pytest.mark.skipif(not PAIRED, reason="no target with products of pairs of pixels runs here")
@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES))
def test_convolution_by_pairs_of_pixels(data: st.DataObject, mode: str) -> None:
    isa = data.draw(st.sampled_from(PAIRED))
    case = convolution(data.draw, isa, get_mode(mode), neighbours=True)
    assert pairs_of(isa, case.layer, 2)
    holds(data.draw, isa, case)


@runs_here
@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), RUNNING)
def test_dense(data: st.DataObject, mode: str, isa: Isa) -> None:
    try:
        case = dense(data.draw, isa, get_mode(mode))
    except Declined:
        assert mode == LITERT_REFERENCE  # this mode has no kernel for dense layers with scales of 1 or more
        return
    holds(data.draw, isa, case)


def small(isa: Isa, *, weight: int = 7, scale: float = 0.01, out: Bounds | None = None) -> Kernel:
    """Returns the kernel of a 3x3 convolution on 8x8 pixels of 16 channels. Both images have a halo."""
    halo = Halo(1, 1, 1, 1)
    image = Image(1, 8, 8, 16, isa.lanes, halo)
    weights = np.full((16, 3, 3, 16), weight)
    epilogue = Epilogue(FloatScale(np.full(16, scale, np.float32), bounded=True), out or Bounds(3))
    layer = Layer(image, image, Window((3, 3), padding=(1, 1)))
    return conv(isa, layer, weights, np.zeros(16, np.int32), epilogue, Tile(1, 8, 1), parallel=False)


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
def test_layers_that_differ_in_numbers_share_their_code(isa: Isa) -> None:
    assert small(isa).content == small(isa, weight=-3, scale=0.5, out=Bounds(200)).content


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


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
def test_weights_beyond_the_instruction_are_split_without_loss(isa: Isa) -> None:
    weights = np.arange(-255, 256)
    excess = Excess(weights, isa)
    parts = [excess.weights, *excess.parts]
    np.testing.assert_array_equal(sum(parts), weights)
    low, high = isa.weight_limits
    assert all(low <= part.min() and part.max() <= high for part in parts)
