"""Concatenation on GPUs equals the oracle, whether or not its parts begin at a block of channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.arithmetic.tables import places
from service.compiler.kernels.cuda.operators.concat import concat
from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Halo, Image
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array
from tests.support.cuda.cards import as_isa
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import arrays, blocked, laid_out, quantized_types, read_back, run, stored, with_halo
from tests.support.qnn_models import SIGNED_MODES
from tools.cuda_emulator.emulated_kernel import EmulatedKernel

CARD = as_isa("sm_80")
TYPE, OTHER = QuantizedType("uint8", (0.5,), (3,)), QuantizedType("uint8", (0.3,), (9,))
CHANNELS = st.sampled_from([1, 3, 15, 16, 31, 32, 33, 70])


def operation_of(shapes: Sequence[tuple[int, ...]], types: Sequence[QuantizedType], axis: int) -> Operation:
    """Returns a concatenation of parts with these shapes. `types` are the types of the parts, then of the output."""
    parts = [
        relax.Var("x", relax.TensorType(shape, quantized.storage))
        for shape, quantized in zip(shapes, types[:-1], strict=True)
    ]
    return Operation(ops.concatenate(parts, types[:-1], types[-1], axis))


@settings(max_examples=examples(20), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data(), st.sampled_from(SIGNED_MODES), st.sampled_from(["int8", "uint8"]))
def test_channels(data: st.DataObject, mode_name: str, storage: str) -> None:
    draw, mode = data.draw, get_mode(mode_name)
    outer = draw(st.sampled_from([(1, 2, 3), (2, 1, 1), (2, 3, 2)]))
    out_type = draw(quantized_types(storage))
    channels = draw(st.lists(CHANNELS, min_size=1, max_size=4))
    # Most parts have the type of the output, so that they are only copied, as in real models.
    in_types = [draw(st.just(out_type) | quantized_types(storage)) for _ in channels]
    values = [draw(arrays((*outer, count), storage)) for count in channels]
    operation = operation_of([each.shape for each in values], [*in_types, out_type], 3)

    sources = [draw(blocked(CARD, (*outer, count))) for count in channels]
    destination = draw(blocked(CARD, (*outer, sum(channels))))
    kernel = concat(sources, destination, operation, mode)
    inputs = [laid_out(image, stored(each)) for image, each in zip(sources, values, strict=True)]
    written = read_back(destination, run(CARD, kernel, *inputs))[..., : destination.channels]
    expected = stored(mode.formula(operation).evaluate(operation, *values))
    np.testing.assert_array_equal(written, with_halo(destination, expected, stored_zero_point(out_type)))


@pytest.mark.parametrize("channels", [(20, 5, 40), (64, 7, 33), (3, 29, 20, 16)])
def test_parts_that_are_already_in_the_destination_do_not_change(channels: tuple[int, ...]) -> None:
    """Parts that begin at a block are already in the destination. The unused elements of these parts' last blocks
    contain random values."""
    mode, outer, halo = get_mode("onnxruntime"), (2, 3, 2), Halo(1, 0, 1, 2)
    rng = np.random.default_rng(sum(channels))
    values = [rng.integers(0, 256, (*outer, count)).astype(np.uint8) for count in channels]
    operation = operation_of([each.shape for each in values], [TYPE] * (len(channels) + 1), 3)
    destination = Image(*outer, sum(channels), BLOCK, halo)
    placed = [index for index, block in enumerate(places(BLOCK, mode, operation)) if block is not None]
    assert 0 < len(placed) < len(channels)
    sources = [Image(*outer, count, BLOCK) for count in channels]
    written = np.full(destination.size_bytes, 5, np.uint8)
    first = 0
    for index, each in enumerate(values):
        if index in placed:
            part = destination.part(first // BLOCK, each.shape[-1])
            whole = Image(*outer, part.shared_blocks * BLOCK, BLOCK, halo).part(part.first_block, each.shape[-1])
            own = laid_out(whole, each, TYPE.zero_point)
            view, from_ = (
                array[: destination.batch * destination.image].reshape(destination.batch, part.shared_blocks, -1)
                for array in (written, own)
            )
            blocks = slice(part.first_block, part.first_block + part.blocks)
            view[:, blocks] = from_[:, blocks]
        first += each.shape[-1]

    kernel = concat(sources, destination, operation, mode, placed=placed)
    inputs = [laid_out(image, each) for image, each in zip(sources, values, strict=True)]
    copied = [each for index, each in enumerate(inputs) if index not in placed]
    launched(kernel, [*copied, *kernel.constants, written])
    found = read_back(destination, written)[..., : destination.channels]
    np.testing.assert_array_equal(found, with_halo(destination, np.concatenate(values, -1), TYPE.zero_point))


def launched(kernel: Kernel, operands: list[Array]) -> None:
    function, launch = kernel.function, kernel.launch
    assert launch is not None
    emulated = EmulatedKernel(function.source, "OCTET_KERNEL")
    emulated.launch(launch.grid, launch.block, launch.shared_bytes, operands)


def test_rows_of_a_matrix_are_images_of_one_pixel() -> None:
    """Concatenates matrices `[N, K]` along their second axis."""
    mode = get_mode("xnnpack")
    types = [QuantizedType("uint8", (0.5,), (zero_point,)) for zero_point in (0, 10, 0)]
    operation = operation_of([(5, 16), (5, 3)], types, 1)
    images = [Image(5, 1, 1, channels, BLOCK) for channels in (16, 3, 19)]
    values = [np.arange(5 * channels, dtype=np.uint8).reshape(5, channels) for channels in (16, 3)]
    kernel = concat(images[:2], images[2], operation, mode)
    inputs = [laid_out(image, each.reshape(image.shape)) for image, each in zip(images[:2], values, strict=True)]
    written = read_back(images[2], run(CARD, kernel, *inputs))[:, 0, 0, :19]
    np.testing.assert_array_equal(written, mode.formula(operation).evaluate(operation, *values))


@pytest.mark.parametrize(
    ("parts", "axis", "block", "reason"),
    [(2, 1, BLOCK, "not along the channels"), (2, 3, 0, "not in blocks"), (65, 3, BLOCK, "joins 65 tensors")],
)
def test_other_axes_and_layouts_are_declined(parts: int, axis: int, block: int, reason: str) -> None:
    image = Image(1, 4, 4, 16, block)
    operation = operation_of([image.shape] * parts, [TYPE] * (parts + 1), axis)
    with pytest.raises(Declined, match=reason):
        concat([image] * parts, image, operation, get_mode("xnnpack"))


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_nvrtc_compiles_the_kernel(capability: str) -> None:
    sources = [Image(2, 5, 7, channels, BLOCK) for channels in (40, 5, 32)]
    operation = operation_of([each.shape for each in sources], [TYPE, OTHER, TYPE, TYPE], 3)
    kernel = concat(sources, Image(2, 5, 7, 77, BLOCK), operation, get_mode("onnxruntime"), placed=[0])
    compile_for(capability, kernel)
