"""On GPUs, packing writes every element to its offset in the image, and unpacking restores the tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.arithmetic.conversion import dequantization_of, quantization_of
from service.compiler.kernels.cuda.operators.reorder import pack, unpack
from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import NO_HALO, Halo, Image
from service.compiler.qnn import ops
from service.compiler.qnn.expressions.conversions import Dequantization, Quantization
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import ONNXRUNTIME
from service.core.models.arrays import Array
from tests.support.cuda.cards import as_isa
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import (
    arrays,
    blocked,
    halos,
    quantized_types,
    read_back,
    run,
    shapes,
    stored,
    with_halo,
)
from tests.support.qnn_models import STORED_MODES
from tests.support.real_values import around

CARD = as_isa("sm_80")
ZERO_POINT = 9
REALS = relax.Var("reals", relax.TensorType([1], "float32"))
# Failing examples are not shrunk, because each example compiles kernels.
EXAMPLES = settings(max_examples=examples(15), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
RAGGED = [
    Image(2, 3, 5, 1, BLOCK, Halo(1, 0, 2, 1)),
    Image(1, 5, 3, 3, 0, Halo(1, 1, 1, 1)),
    Image(2, 2, 7, 31, BLOCK),
    Image(2, 1, 1, 33, BLOCK),
    Image(1, 4, 3, 70, BLOCK, Halo(0, 2, 0, 0)),
    Image(2, 3, 3, 64, BLOCK, Halo(1, 1, 1, 1)),
    Image(1, 3, 3, 4 * BLOCK, BLOCK, Halo(1, 1, 0, 0)).part(1, 40),
]


def come_back(image: Image, values: Array, channels_first: bool) -> None:
    """Checks that packing writes `values` to their offsets in the image, and that unpacking restores them.

    The emulation reports any access after the end of the caller's tensor.
    """
    dtype, outside = str(values.dtype), values.transpose(0, 3, 1, 2) if channels_first else values
    reordered = run(CARD, pack(image, dtype, ZERO_POINT, channels_first=channels_first), outside.reshape(-1))
    found = read_back(image, reordered)
    np.testing.assert_array_equal(found[..., : image.channels], with_halo(image, stored(values), ZERO_POINT))
    assert not inside(image, found)[..., image.channels :].any()
    left = run(CARD, unpack(image, dtype, channels_first=channels_first), reordered, dtype=dtype)
    np.testing.assert_array_equal(left.reshape(outside.shape), outside)


def inside(image: Image, found: Array) -> Array:
    """Returns `found` without the halo."""
    top, left = image.halo.top, image.halo.left
    return found[:, top : top + image.height, left : left + image.width]


@pytest.mark.parametrize("image", RAGGED, ids=str)
@pytest.mark.parametrize("channels_first", [False, True])
def test_every_channel_is_restored(image: Image, channels_first: bool) -> None:
    values = np.random.default_rng(7).integers(-128, 128, image.shape).astype(np.int8)
    come_back(image, values, channels_first)


@EXAMPLES
@given(st.data())
def test_every_channel_of_any_layout_is_restored(data: st.DataObject) -> None:
    draw = data.draw
    shape = draw(shapes())
    image = draw(blocked(CARD, shape) | st.builds(Image, *map(st.just, shape), st.just(0), halos()))
    come_back(image, draw(arrays(shape, draw(st.sampled_from(["int8", "uint8"])))), draw(st.booleans()))


@EXAMPLES
@given(st.data(), st.sampled_from(STORED_MODES))
def test_packing_quantizes_and_unpacking_dequantizes(data: st.DataObject, mode: str) -> None:
    draw, numerics = data.draw, get_mode(mode)
    image = draw(st.sampled_from(RAGGED))
    kind = draw(quantized_types(draw(st.sampled_from(["int8", "uint8"]))))
    quantize, dequantize = Operation(ops.quantize(REALS, kind)), Operation(ops.dequantize(REALS, kind))
    axes = draw(st.sampled_from([(0, 3, 1, 2), (0, 1, 2, 3)]))
    channels_first = axes[1] == 3
    values = around(kind, image.shape, draw(st.integers(0, 1 << 32)))

    quantized = numerics.formula(quantize).evaluate(quantize, values)
    packing = pack(image, "float32", ZERO_POINT, quantization_of(numerics, quantize), channels_first=channels_first)
    reordered = run(CARD, packing, values.transpose(axes).reshape(-1))
    expected = with_halo(image, stored(quantized), ZERO_POINT)
    np.testing.assert_array_equal(read_back(image, reordered)[..., : image.channels], expected)

    unpacking = unpack(image, "float32", dequantization_of(numerics, dequantize), channels_first=channels_first)
    real = numerics.formula(dequantize).evaluate(dequantize, quantized)
    left = run(CARD, unpacking, reordered, dtype="float32")
    np.testing.assert_array_equal(left, real.transpose(axes).reshape(-1))


def test_nan_is_quantized_as_by_mlas() -> None:
    kind = QuantizedType("uint8", (0.5,), (9,), None, 3, 200)
    image, quantize = Image(1, 2, 8, 4, BLOCK), Operation(ops.quantize(REALS, kind))
    packing = pack(image, "float32", 0, quantization_of(get_mode(ONNXRUNTIME), quantize))
    reordered = run(CARD, packing, np.full(image.shape, np.nan, np.float32).reshape(-1))
    assert (read_back(image, reordered)[..., :4] == 3).all()


def test_numbers_share_one_program() -> None:
    image = Image(1, 8, 8, 16, BLOCK, Halo(1, 1, 1, 1))
    one, other = (
        pack(image, "float32", fill, Quantization(factor, -1.0, 1.0, fill, 0, 255))
        for fill, factor in ((0, 0.5), (255, 2.0))
    )
    assert one.symbol == other.symbol


@pytest.mark.parametrize(("dtype", "block"), [("int16", BLOCK), ("int8", 16)])
def test_other_types_and_layouts_are_declined(dtype: str, block: int) -> None:
    image = Image(1, 8, 8, 16, block)
    with pytest.raises(Declined):
        pack(image, dtype, 0)
    with pytest.raises(Declined):
        unpack(image, dtype)


COMPILED = [
    pack(Image(2, 5, 7, 70, BLOCK, Halo(1, 1, 1, 1)), "int8", 3),
    pack(Image(2, 5, 7, 3, 0, Halo(1, 1, 1, 1)), "float32", 3, Quantization(0.5, -9.0, 9.0, 3, 0, 255, away=True)),
    unpack(Image(2, 5, 7, 70, BLOCK, NO_HALO), "float32", Dequantization(0.5, 3), channels_first=True),
]


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("kernel", COMPILED, ids=lambda kernel: kernel.family)
def test_nvrtc_compiles_the_kernel(capability: str, kernel: Kernel) -> None:
    compile_for(capability, kernel)
