"""Kernels interpolate as the oracle of every mode that defines it does, bit for bit, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.images.pixels import take_pixels
from service.compiler.kernels.simd.images.resize import resize_bilinear
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.examples import examples
from tests.support.images import RUNNABLE, check_image
from tests.support.pools import interpolation, taken_pixels

EXAMPLES = settings(max_examples=examples(25), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@EXAMPLES
@given(st.data(), st.sampled_from([LITERT_REFERENCE, XNNPACK]), st.sampled_from(RUNNABLE or list(ISAS.values())))
def test_equals_the_oracle(data: st.DataObject, mode: str, isa: Isa) -> None:
    (operation, x), numerics = interpolation(data.draw), get_mode(mode)

    def make(source: Image, destination: Image) -> Kernel:
        return resize_bilinear(isa, source, destination, operation, numerics, parallel=data.draw(st.booleans()))

    expected = numerics.formula(operation).evaluate(operation, x)
    check_image(data.draw, isa, x, expected, stored_zero_point(operation.per_tensor("out_type")), make)


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@EXAMPLES
@given(st.data(), st.sampled_from(RUNNABLE or list(ISAS.values())))
def test_taken_pixels_equal_the_oracle(data: st.DataObject, isa: Isa) -> None:
    operation, x = taken_pixels(data.draw)
    expected = get_mode(XNNPACK).formula(operation).evaluate(operation, x)
    np.testing.assert_array_equal(expected, x[:, operation.attr("rows")][:, :, operation.attr("columns")])

    def make(source: Image, destination: Image) -> Kernel:
        return take_pixels(isa, source, destination, operation, parallel=data.draw(st.booleans()))

    check_image(data.draw, isa, x, expected, stored_zero_point(operation.per_tensor("out_type")), make)


def test_a_packed_image_is_declined() -> None:
    isa, image = ISAS["x86-64-v3"], Image(1, 2, 2, 4, 0)
    with pytest.raises(Declined, match="not in blocks"):
        resize_bilinear(isa, image, image, None, get_mode(XNNPACK), parallel=False)  # type: ignore[arg-type]
