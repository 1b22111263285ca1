"""Depthwise convolutions for GPUs equal the oracle of every mode, bit for bit. Their CUDA source is emulated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.arithmetic.epilogue import Bounds, Epilogue
from service.compiler.kernels.arithmetic.taps import Taps
from service.compiler.kernels.choices import Choices
from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.library import CudaLibrary
from service.compiler.kernels.cuda.operators.depthwise import DepthwiseTile, depthwise, ranked
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image
from service.compiler.qnn.expressions.requantization import FloatScale
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import XNNPACK
from service.core.models.arrays import Array
from tests.support.convolutions import Shape, group_of, module_and_inputs
from tests.support.cuda.cards import as_isa
from tests.support.cuda.device_code import SPILLS, DeviceCode, count
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import Draw
from tests.support.layers import Case, convolution
from tests.support.qnn_models import STORED_MODES

# Failing examples are not shrunk, because each example compiles a kernel.
EXAMPLES = settings(max_examples=examples(12), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
HALO = Halo(1, 1, 1, 1)
capabilities = st.sampled_from(sorted(GPUS))


def holds(draw: Draw, capability: str, case: Case) -> None:
    height, width = case.layer.destination.height, case.layer.destination.width
    drawn = DepthwiseTile(
        draw(st.integers(1, min(3, height))), draw(st.integers(1, min(5, width))), draw(st.booleans())
    )
    tile = draw(st.sampled_from([ranked(GPUS[capability], case.layer)[0], drawn]))
    try:
        kernel = depthwise(case.layer, case.weights[..., 0], case.bias, case.epilogue, tile)
    except Declined:
        assume(False)
    case.check(as_isa(capability), kernel)


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES), capabilities)
def test_depthwise(data: st.DataObject, mode: str, capability: str) -> None:
    holds(data.draw, capability, convolution(data.draw, as_isa(capability), get_mode(mode), depthwise=True))


@settings(EXAMPLES, max_examples=2)
@given(st.data(), st.sampled_from(STORED_MODES), capabilities)
def test_a_kernel_too_large_to_unroll(data: st.DataObject, mode: str, capability: str) -> None:
    case = convolution(data.draw, as_isa(capability), get_mode(mode), depthwise=True, kernel=(23, 23))
    assert not ranked(GPUS[capability], case.layer)[0].unrolled
    holds(data.draw, capability, case)


@pytest.mark.parametrize("capability", sorted(GPUS))
@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from([(1, 1), (3, 3), (5, 5), (1, 7), (31, 31)]), st.integers(1, 30), st.integers(1, 30))
def test_the_chosen_tile_fits_the_output(capability: str, kernel: tuple[int, int], height: int, width: int) -> None:
    layer = Layer(Image(1, 99, 99, 8, 32), Image(1, height, width, 8, 32), Window(kernel))
    for tile in ranked(GPUS[capability], layer):
        assert 1 <= tile.rows <= height
        assert 1 <= tile.columns <= width


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("window", [Window((3, 3), padding=(1, 1)), Window((5, 5), (2, 2), padding=(2, 2))], ids=str)
def test_machine_code(capability: str, window: Window) -> None:
    """There is one dp4a for each product of four taps, and no register is spilled."""
    stride, pad = window.strides[0], window.padding[0]
    source, destination = (
        Image(8, 28, 28, 96, 32, Halo(pad, pad, pad, pad)),
        Image(8, 28 // stride, 28 // stride, 96, 32),
    )
    layer = Layer(source, destination, window)
    tile = ranked(GPUS[capability], layer)[0]
    code = DeviceCode(
        compile_for(capability, depthwise(layer, np.ones((96, *window.kernel), np.int32), *operands(96), tile))
    )
    assert code.usage.stack_bytes == 0
    if capability != "sm_61":  # the disassembler does not support it
        products = 4 * tile.rows * window.kernel[0] * Taps(window, tile.columns).products
        assert count(code.instructions, "IDP.4A") == products
        assert count(code.instructions, *SPILLS) == 0


def operands(channels: int, out: Bounds | None = None) -> tuple[Array, Epilogue]:
    """Returns a bias and an epilogue for a small layer."""
    return np.zeros(channels, np.int32), Epilogue(
        FloatScale(np.full(channels, 0.01, np.float32), True), out or Bounds(3)
    )


def small(*, weight: int = 7, out: Bounds | None = None, packed: bool = False) -> Kernel:
    """Returns the kernel of a 3x3 convolution on 8x8 pixels of 16 channels. Both images have a halo."""
    source, destination = Image(1, 8, 8, 16, 0 if packed else 32, HALO), Image(1, 8, 8, 16, 32, HALO)
    layer = Layer(source, destination, Window((3, 3), padding=(1, 1)))
    tile = ranked(GPUS["sm_80"], layer)[0]
    return depthwise(layer, np.full((16, 3, 3), weight), *operands(32, out), tile)


@settings(max_examples=2, deadline=None)
@given(st.data())
def test_the_library_notes_the_tile(data: st.DataObject) -> None:
    shape = Shape((1, 8, 8), 33, 1, 1, Window((3, 3)), (1, 1, 1, 1))
    module, _ = module_and_inputs(data, shape, "int8")
    group, choices = group_of(module), Choices()
    library = CudaLibrary(GPUS["sm_80"], get_mode(XNNPACK), choices)
    (demand,) = library.demands(group, [False])
    kernel = library.kernel(group, [Image(1, 8, 8, 33, 32, demand.halo)], Image(1, 8, 8, 33, 32))
    assert (kernel.family, demand.packed) == ("depthwise", False)
    (made,) = choices.choices
    assert made.symbol == kernel.symbol
    assert DepthwiseTile.of(made.tile).columns <= 8


def test_layers_that_differ_in_numbers_share_their_code() -> None:
    assert small().content == small(weight=-3, out=Bounds(200)).content


def test_a_packed_source_is_declined() -> None:
    with pytest.raises(Declined, match="blocks of channels"):
        small(packed=True)
