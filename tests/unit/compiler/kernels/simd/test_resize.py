"""Interpolation by kernels equals the oracle of every mode that defines it, bit for bit, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.group import stored_zero_point
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.isa import Isa
from service.compiler.kernels.simd.pixels import take_pixels
from service.compiler.kernels.simd.resize import blend_of, resize_bilinear
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import Mode, get_mode
from service.compiler.qnn.numerics.softmax import TableSoftmax
from service.compiler.qnn.types import QuantizedType
from service.core.numerics import LITERT_REFERENCE, XNNPACK
from tests.support.convolutions import group_of
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
from tests.support.qnn_models import i8, module_of

EXAMPLES = settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
CORNERS = st.sampled_from([(False, False), (True, False), (False, True)])


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@EXAMPLES
@given(st.data(), st.sampled_from([LITERT_REFERENCE, XNNPACK]), st.sampled_from(RUNNABLE or list(ISAS.values())))
def test_equals_the_oracle(data: st.DataObject, mode: str, isa: Isa) -> None:
    draw = data.draw
    shape, size = draw(shapes()), draw(st.tuples(st.integers(1, 11), st.integers(1, 11)))
    kind = draw(quantized_types(draw(st.sampled_from(["int8", "uint8"]))))
    align_corners, half_pixel_centers = draw(CORNERS)
    assume(not align_corners or min(size) > 1)
    values, numerics = draw(arrays(shape, kind.storage)), get_mode(mode)
    how = {"size": size, "align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    module = module_of(
        [(shape, kind.storage)],
        lambda emit, inputs: emit(ops.resize_bilinear(inputs[0], kind, kind, **how)),  # type: ignore[arg-type]
    )
    operation = group_of(module).core
    expected = numerics.formula(operation).evaluate(operation, values)
    source, destination = draw(blocked(isa, shape)), draw(blocked(isa, expected.shape))
    kernel = resize_bilinear(isa, source, destination, operation, numerics, parallel=draw(st.booleans()))
    written = read_back(destination, run(isa, kernel, laid_out(source, stored(values))))
    framed = with_halo(destination, stored(expected), stored_zero_point(kind))
    np.testing.assert_array_equal(written[..., : destination.channels], framed)


@pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
@EXAMPLES
@given(st.data(), st.sampled_from(RUNNABLE or list(ISAS.values())))
def test_taken_pixels_equal_the_oracle(data: st.DataObject, isa: Isa) -> None:
    draw = data.draw
    shape = draw(shapes())
    rows, columns = (
        draw(st.lists(st.integers(0, extent - 1), min_size=1, max_size=11)) for extent in (shape[1], shape[2])
    )
    kind, numerics = draw(quantized_types(draw(st.sampled_from(["int8", "uint8"])))), get_mode(XNNPACK)
    values = draw(arrays(shape, kind.storage))
    module = module_of(
        [(shape, kind.storage)],
        lambda emit, inputs: emit(ops.take_pixels(inputs[0], kind, rows=rows, columns=columns)),
    )
    operation = group_of(module).core
    expected = numerics.formula(operation).evaluate(operation, values)
    np.testing.assert_array_equal(expected, values[:, rows][:, :, columns])
    source, destination = draw(blocked(isa, shape)), draw(blocked(isa, expected.shape))
    kernel = take_pixels(isa, source, destination, operation, parallel=draw(st.booleans()))
    written = read_back(destination, run(isa, kernel, laid_out(source, stored(values))))
    framed = with_halo(destination, stored(expected), stored_zero_point(kind))
    np.testing.assert_array_equal(written[..., : destination.channels], framed)


def test_another_formula_is_declined() -> None:
    kind: QuantizedType = i8(0.1)
    how = {"size": (2, 2), "align_corners": False, "half_pixel_centers": False}
    module = module_of(
        [((1, 3, 3, 4), "int8")],
        lambda emit, inputs: emit(ops.resize_bilinear(inputs[0], kind, kind, **how)),  # type: ignore[arg-type]
    )
    mode = Mode("odd", "odd", {"resize_bilinear": TableSoftmax()})
    with pytest.raises(Declined, match="no kernel computes"):
        blend_of(mode, group_of(module).core)


def test_a_packed_image_is_declined() -> None:
    isa, image = ISAS["x86-64-v3"], Image(1, 2, 2, 4, 0)
    with pytest.raises(Declined, match="not in blocks"):
        resize_bilinear(isa, image, image, None, get_mode(XNNPACK), parallel=False)  # type: ignore[arg-type]
