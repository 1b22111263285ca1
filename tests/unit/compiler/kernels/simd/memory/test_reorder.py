"""Packing writes every element to its offset in the image, and unpacking restores the tensor."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from service.compiler.kernels.arithmetic.conversion import dequantization_of, quantization_of
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.simd.memory.reorder import pack, unpack
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import ONNXRUNTIME
from tests.support.examples import examples
from tests.support.images import (
    RUNNABLE,
    arrays,
    at_a_wall,
    blocked,
    built,
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

import tvm  # isort: skip

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
ZERO_POINT = 9
REALS = relax.Var("reals", relax.TensorType([1], "float32"))
# The sizes of the tensors are multiples of 64 bytes, as `at_a_wall` requires. The kernels copy rows, whole blocks,
# blocks with filler, or parts of blocks.
UP_TO_THE_WALL = [
    ((1, 8, 8, 3), False, Halo(1, 2, 1, 3)),
    ((1, 8, 8, 3), False, Halo()),
    ((1, 8, 8, 3), True, Halo()),
    ((2, 4, 8, 7), True, Halo(1, 1, 1, 1)),
    ((1, 4, 4, 100), True, Halo()),
    ((1, 8, 8, 24), True, Halo(0, 1, 0, 0)),
    ((64, 1, 1, 9), True, Halo()),
    ((1, 1, 1, 1088), True, Halo()),
]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_packing_and_unpacking_restore_every_channel(data: st.DataObject) -> None:
    draw = data.draw
    isa, shape = draw(st.sampled_from(RUNNABLE)), draw(shapes())
    image = draw(blocked(isa, shape) | st.builds(Image, *map(st.just, shape), st.just(0), halos()))
    dtype, parallel, channels_first = draw(st.sampled_from(["int8", "uint8"])), draw(st.booleans()), draw(st.booleans())
    values = draw(arrays(shape, dtype))
    outside = values.transpose(0, 3, 1, 2) if channels_first else values

    packing = pack(isa, image, dtype, ZERO_POINT, channels_first=channels_first, parallel=parallel)
    reordered = run(isa, packing, outside.reshape(-1))
    expected = with_halo(image, stored(values), ZERO_POINT)
    np.testing.assert_array_equal(read_back(image, reordered)[..., : image.channels], expected)

    if channels_first and image.packed:
        return
    unpacking = unpack(isa, image, dtype, channels_first=channels_first, parallel=parallel)
    left = run(isa, unpacking, reordered, dtype=dtype)
    np.testing.assert_array_equal(left.reshape(outside.shape), outside)


@settings(max_examples=examples(20), deadline=None)
@given(st.data(), st.sampled_from(STORED_MODES))
def test_packing_quantizes_and_unpacking_dequantizes(data: st.DataObject, mode: str) -> None:
    draw = data.draw
    isa, shape = draw(st.sampled_from(RUNNABLE)), draw(shapes())
    image = draw(blocked(isa, shape) | st.builds(Image, *map(st.just, shape), st.just(0), halos()))
    kind, parallel = draw(quantized_types(draw(st.sampled_from(["int8", "uint8"])))), draw(st.booleans())
    values, numerics = around(kind, shape, draw(st.integers(0, 1 << 32))), get_mode(mode)
    quantize, dequantize = Operation(ops.quantize(REALS, kind)), Operation(ops.dequantize(REALS, kind))

    quantized = numerics.formula(quantize).evaluate(quantize, values)
    conversion = quantization_of(numerics, quantize)
    channels_first = not image.packed and draw(st.booleans())
    axes = (0, 3, 1, 2) if channels_first else (0, 1, 2, 3)
    kernel = pack(isa, image, "float32", ZERO_POINT, conversion, channels_first=channels_first, parallel=parallel)
    reordered = run(isa, kernel, values.transpose(axes).reshape(-1))
    expected = with_halo(image, stored(quantized), ZERO_POINT)
    np.testing.assert_array_equal(read_back(image, reordered)[..., : image.channels], expected)

    real_of = dequantization_of(numerics, dequantize)
    unpacking = unpack(isa, image, "float32", real_of, channels_first=channels_first, parallel=parallel)
    left = run(isa, unpacking, reordered, dtype="float32")
    real = numerics.formula(dequantize).evaluate(dequantize, quantized)
    np.testing.assert_array_equal(left, real.transpose(axes).reshape(-1))


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
def test_nan_is_quantized_as_by_mlas(isa: Isa) -> None:
    kind = QuantizedType("uint8", (0.5,), (9,), None, 3, 200)
    quantize = Operation(ops.quantize(REALS, kind))
    image = Image(1, 2, 8, 4, isa.lanes)
    conversion = quantization_of(get_mode(ONNXRUNTIME), quantize)
    values = np.full(image.shape, np.nan, np.float32)
    reordered = run(isa, pack(isa, image, "float32", 0, conversion, parallel=False), values.reshape(-1))
    assert (read_back(image, reordered)[..., :4] == 3).all()


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize("channels", [3, 24, 100])
def test_filler_channels_are_zero(isa: Isa, channels: int) -> None:
    image = Image(1, 3, 5, channels, isa.lanes)
    values = np.full(image.shape, 200, np.uint8)
    reordered = run(isa, pack(isa, image, "uint8", ZERO_POINT, parallel=False), values.reshape(-1))
    assert not read_back(image, reordered)[..., channels:].any()


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize(("shape", "blocked", "halo"), UP_TO_THE_WALL)
@pytest.mark.parametrize("channels_first", [False, True])
def test_memory_after_the_callers_tensor_is_not_accessed(
    isa: Isa, shape: tuple[int, int, int, int], blocked: bool, halo: Halo, channels_first: bool
) -> None:
    """A kernel that accesses memory after the tensor's end crashes the test run."""
    image = Image(*shape, isa.lanes if blocked else 0, halo)
    inside, walled = tvm.runtime.tensor(np.zeros(image.size_bytes, np.uint8)), at_a_wall(math.prod(shape), "int8")
    walled[:] = 1
    outside = tvm.runtime.from_dlpack(walled)
    packing = pack(isa, image, "int8", ZERO_POINT, channels_first=channels_first, parallel=False)
    built(isa, packing)(outside, *map(tvm.runtime.tensor, packing.constants), inside)
    if channels_first and image.packed:
        return
    walled[:] = 0
    built(isa, unpack(isa, image, "int8", channels_first=channels_first, parallel=False))(inside, outside)
    assert (walled == 1).all()


def test_zero_points_share_one_program() -> None:
    isa = ISAS["x86-64-v3"]
    image = Image(1, 8, 8, 16, isa.lanes, Halo(1, 1, 1, 1))
    one, other = (pack(isa, image, "int8", zero_point, parallel=False) for zero_point in (0, 255))
    assert one.content == other.content


@pytest.mark.parametrize(("dtype", "block"), [("int16", 8), ("int8", 16)])
def test_other_types_and_layouts_are_declined(dtype: str, block: int) -> None:
    isa = ISAS["x86-64-v3"]
    image = Image(1, 8, 8, 16, block)
    with pytest.raises(Declined):
        pack(isa, image, dtype, 0, parallel=False)
    with pytest.raises(Declined):
        unpack(isa, image, dtype, parallel=False)
