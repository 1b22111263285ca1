"""A move on a GPU copies every element to the right offset, for any layout of the sources and the destination."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.compiler.kernels.cuda.operators.moves import move
from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.moves import MOST_ELEMENTS, Memory, Move
from service.core.models.arrays import Array
from tests.support.cuda.cards import as_isa
from tests.support.cuda.machine_code import CAPABILITIES, compile_for, needs_nvrtc
from tests.support.examples import examples
from tests.support.images import arrays, laid_out, read_back, run, stored, with_halo
from tests.support.moves import move_elements

CARD = as_isa("sm_80")
FILL = 9


def image_of(elements: Array) -> Image:
    batch, *middle, channels = elements.shape
    return Image(batch, int(np.prod(middle[:-1])), middle[-1], channels, BLOCK, Halo(0, 1, 2, 1))


@settings(max_examples=examples(25), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.data(), st.sampled_from(["int8", "uint8"]))
def test_bytes(data: st.DataObject, storage: str) -> None:
    draw = data.draw
    outer = draw(st.sampled_from([(1, 3, 4), (2, 1, 6)]))
    channels = draw(st.lists(st.sampled_from([1, 16, 17, 58]), min_size=1, max_size=3))
    values = [draw(arrays((*outer, count), storage)) for count in channels]
    numbers = np.split(np.arange(sum(each.size for each in values)), np.cumsum([each.size for each in values])[:-1])
    elements = draw(move_elements([own.reshape(each.shape) for own, each in zip(numbers, values, strict=True)]))
    images = [image_of(each) if draw(st.booleans()) else None for each in values]
    memories = [
        Memory.contiguous(each.shape, storage) if image is None else Memory.of_image(image, storage)
        for image, each in zip(images, values, strict=True)
    ]
    rescaled, rng = draw(st.booleans()), np.random.default_rng(0)
    tables = [
        rng.permutation(256).astype(np.uint8) if rescaled and position != 1 else None for position in range(len(values))
    ]
    image = image_of(elements) if draw(st.booleans()) else None
    destination = Memory.contiguous(elements.shape, storage) if image is None else Memory.of_image(image, storage)

    kernel = move(Move(tuple(memories), tuple(tables), destination, elements.reshape(-1), FILL))
    inputs = [
        each.reshape(-1) if position is None else laid_out(position, stored(each))
        for position, each in zip(images, values, strict=True)
    ]
    as_stored = [
        stored(each) if table is None else table[stored(each)] for each, table in zip(values, tables, strict=True)
    ]
    expected = np.concatenate([each.reshape(-1) for each in as_stored])[elements]
    if image is None:
        got = stored(run(CARD, kernel, *inputs, dtype=storage))
        np.testing.assert_array_equal(got.reshape(elements.shape), expected)
    else:
        written = read_back(image, run(CARD, kernel, *inputs))[..., : image.channels]
        np.testing.assert_array_equal(written, with_halo(image, expected.reshape(image.shape), FILL))


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize(("pixels", "channels"), [(64, 48), (49, 21)])
def test_transposed(pixels: int, channels: int, dtype: str) -> None:
    values = np.random.default_rng(0).integers(-128, 128, (2, pixels, channels)).astype(dtype)
    elements = np.arange(values.size).reshape(values.shape).transpose(0, 2, 1)
    source, destination = (Memory.contiguous(shape, dtype) for shape in (values.shape, elements.shape))
    kernel = move(Move((source,), (None,), destination, elements.reshape(-1)))
    assert pixels % 16 or kernel.facts["ways"] == 2, "one way for contiguous elements, one for scattered ones"
    got = run(CARD, kernel, values.reshape(-1), dtype=dtype)
    np.testing.assert_array_equal(got, values.reshape(-1)[elements.reshape(-1)])


def test_a_channel_shuffle_needs_few_copying_patterns() -> None:
    """A vector of 16 output channels contains 8 channels of each part. The last vector has only four channels."""
    elements = np.arange(2 * 28 * 28 * 58).reshape(2, 28, 28, 58).transpose(1, 2, 3, 0).reshape(-1)
    part = Memory.of_image(Image(1, 28, 28, 58, BLOCK), "uint8")
    whole = Memory.of_image(Image(1, 28, 28, 116, BLOCK), "uint8")
    assert move(Move((part, part), (None, None), whole, elements)).facts["ways"] <= 4


def test_any_order() -> None:
    elements = np.random.default_rng(0).permutation(33 * 61)[:999]
    source, destination = Memory.contiguous((33, 61), "uint8"), Memory.contiguous((999,), "uint8")
    values = np.random.default_rng(1).integers(0, 256, 33 * 61).astype(np.uint8)
    got = run(CARD, move(Move((source,), (None,), destination, elements)), values)
    np.testing.assert_array_equal(got, values[elements])


def test_others_are_declined() -> None:
    memory, wide = Memory.contiguous((64,), "uint8"), Memory.contiguous((64,), "int64")
    for sources, elements, reason in (
        ((wide,), np.zeros(64, np.int64), "int64"),
        ((memory,) * 65, np.zeros(64, np.int64), "65 tensors"),
        ((memory,), np.zeros(MOST_ELEMENTS + 1, np.int64), "elements"),
        ((memory,), np.zeros(0, np.int64), "no elements"),
    ):
        with pytest.raises(Declined, match=reason):
            move(Move(sources, (None,) * len(sources), memory, elements))


@needs_nvrtc
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_nvrtc_compiles_the_kernel(capability: str) -> None:
    elements = np.arange(2 * 7 * 7 * 58).reshape(2, 7, 7, 58).transpose(1, 2, 3, 0).reshape(-1)
    part = Memory.of_image(Image(1, 7, 7, 58, BLOCK), "uint8")
    whole = Memory.of_image(Image(1, 7, 7, 116, BLOCK, Halo(1, 1, 1, 1)), "uint8")
    table = np.arange(256, dtype=np.uint8)[::-1]
    compile_for(capability, move(Move((part, part), (None, table), whole, elements)))
