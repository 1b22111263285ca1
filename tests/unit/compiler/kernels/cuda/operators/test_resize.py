"""Interpolation on GPUs equals the oracle of every mode that defines it, bit for bit. Its CUDA source is emulated."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.cuda.operators.resize import resize_bilinear, take_pixels
from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Halo, Image
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.cuda.cards import as_isa
from tests.support.cuda.device_code import DeviceCode
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import check_image
from tests.support.pools import interpolation, resized, taken_pixels
from tests.support.qnn_models import i8

# Failing examples are not shrunk, because each example compiles a kernel.
EXAMPLES = settings(max_examples=examples(8), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
ISA = as_isa("sm_80")


@EXAMPLES
@given(st.data(), st.sampled_from([LITERT_REFERENCE, XNNPACK]))
def test_equals_the_oracle(data: st.DataObject, mode: str) -> None:
    (operation, x), numerics = interpolation(data.draw), get_mode(mode)

    def make(source: Image, destination: Image) -> Kernel:
        return resize_bilinear(source, destination, operation, numerics)

    expected = numerics.formula(operation).evaluate(operation, x)
    check_image(data.draw, ISA, x, expected, stored_zero_point(operation.per_tensor("out_type")), make)


@EXAMPLES
@given(st.data())
def test_taken_pixels_equal_the_oracle(data: st.DataObject) -> None:
    operation, x = taken_pixels(data.draw)

    def make(source: Image, destination: Image) -> Kernel:
        return take_pixels(source, destination, operation)

    expected = get_mode(XNNPACK).formula(operation).evaluate(operation, x)
    check_image(data.draw, ISA, x, expected, stored_zero_point(operation.per_tensor("out_type")), make)


def test_a_packed_image_is_declined() -> None:
    image = Image(1, 2, 2, 4, 0)
    with pytest.raises(Declined, match="not in blocks"):
        resize_bilinear(image, image, resized((1, 2, 2, 4), i8(0.1), size=(2, 2)), get_mode(XNNPACK))


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("mode", [LITERT_REFERENCE, XNNPACK])
def test_machine_code(capability: str, mode: str) -> None:
    source, destination = Image(1, 8, 8, 70, 32), Image(1, 16, 16, 70, 32, Halo(1, 1, 1, 1))
    kernel = resize_bilinear(source, destination, resized(source.shape, i8(0.1), size=(16, 16)), get_mode(mode))
    assert DeviceCode(compile_for(capability, kernel)).usage.stack_bytes == 0
