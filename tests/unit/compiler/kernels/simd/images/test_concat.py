"""Concatenation equals the oracle, whether or not its parts begin at a block of channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.images.concat import concat
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from tests.support.examples import examples
from tests.support.images import (
    RUNNABLE,
    arrays,
    blocked,
    laid_out,
    quantized_types,
    read_back,
    run,
    shapes,
    stored,
    with_halo,
)
from tests.support.qnn_models import SIGNED_MODES

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
CHANNELS = st.sampled_from([1, 3, 8, 15, 16, 24, 32, 100])


def operation_of(shapes: Sequence[tuple[int, ...]], types: Sequence[QuantizedType], axis: int) -> Operation:
    """Returns a concatenation of parts with these shapes. `types` are the types of the parts, then of the output."""
    parts = [
        relax.Var("x", relax.TensorType(shape, quantized.storage))
        for shape, quantized in zip(shapes, types[:-1], strict=True)
    ]
    return Operation(ops.concatenate(parts, types[:-1], types[-1], axis))


@settings(max_examples=examples(40), deadline=None)
@given(st.data(), st.sampled_from(SIGNED_MODES), st.sampled_from(["int8", "uint8"]))
def test_channels(data: st.DataObject, mode_name: str, storage: str) -> None:
    draw, mode = data.draw, get_mode(mode_name)
    isa, outer = draw(st.sampled_from(RUNNABLE)), draw(shapes())[:3]
    out_type = draw(quantized_types(storage))
    channels = draw(st.lists(CHANNELS, min_size=1, max_size=4))
    # Most parts have the type of the output, so that they are only copied, as in real models.
    in_types = [draw(st.just(out_type) | quantized_types(storage)) for _ in channels]
    values = [draw(arrays((*outer, count), storage)) for count in channels]
    operation = operation_of([each.shape for each in values], [*in_types, out_type], 3)

    sources = [draw(blocked(isa, (*outer, count))) for count in channels]
    destination = draw(blocked(isa, (*outer, sum(channels))))
    kernel = concat(isa, sources, destination, operation, mode, parallel=draw(st.booleans()))
    inputs = [laid_out(image, stored(each)) for image, each in zip(sources, values, strict=True)]
    written = read_back(destination, run(isa, kernel, *inputs))[..., : destination.channels]
    expected = stored(mode.formula(operation).evaluate(operation, *values))
    np.testing.assert_array_equal(written, with_halo(destination, expected, stored_zero_point(out_type)))


def test_rows_of_a_matrix_are_images_of_one_pixel() -> None:
    """Concatenates matrices `[N, K]` along their second axis."""
    isa, mode = ISAS["x86-64-v3"], get_mode("xnnpack")
    types = [QuantizedType("uint8", (0.5,), (zero_point,)) for zero_point in (0, 10, 0)]
    operation = operation_of([(5, 16), (5, 3)], types, 1)
    images = [Image(5, 1, 1, channels, isa.lanes) for channels in (16, 3, 19)]
    values = [np.arange(5 * channels, dtype=np.uint8).reshape(5, channels) for channels in (16, 3)]
    kernel = concat(isa, images[:2], images[2], operation, mode, parallel=False)
    inputs = [laid_out(image, each.reshape(image.shape)) for image, each in zip(images[:2], values, strict=True)]
    written = read_back(images[2], run(isa, kernel, *inputs))[:, 0, 0, :19]
    np.testing.assert_array_equal(written, mode.formula(operation).evaluate(operation, *values))


@pytest.mark.parametrize(("axis", "block", "reason"), [(1, 8, "not along the channels"), (3, 0, "not in blocks")])
def test_other_axes_and_layouts_are_declined(axis: int, block: int, reason: str) -> None:
    isa = ISAS["x86-64-v3"]
    quantized = QuantizedType("int8", (0.1,))
    image = Image(1, 4, 4, 16, block)
    operation = operation_of([image.shape, image.shape], [quantized] * 3, axis)
    with pytest.raises(Declined, match=reason):
        concat(isa, [image, image], image, operation, get_mode("xnnpack"), parallel=False)
