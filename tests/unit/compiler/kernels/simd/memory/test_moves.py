"""A move copies every element to the right offset, for any layout of the sources and the destination."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.moves import Memory, Move, patterns
from service.compiler.kernels.simd.memory.moves import move
from service.compiler.kernels.vector.isa import Isa
from service.core.models.arrays import Array
from tests.support.examples import examples
from tests.support.images import RUNNABLE, arrays, blocked, laid_out, read_back, run, stored, with_halo
from tests.support.moves import move_elements

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")

CHANNELS = (8, 17, 24, 58)


def of(array: Array) -> tuple[int, int, int, int]:
    batch, *middle, channels = array.shape
    return batch, int(np.prod(middle[:-1])), middle[-1], channels


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from(["int8", "uint8"]))
def test_bytes(data: st.DataObject, storage: str) -> None:
    draw = data.draw
    isa: Isa = draw(st.sampled_from(RUNNABLE))
    outer = draw(st.sampled_from([(1, 3, 4), (2, 1, 7), (1, 14, 14)]))
    channels = draw(st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=3))
    values = [draw(arrays((*outer, count), storage)) for count in channels]
    numbers = np.split(np.arange(sum(each.size for each in values)), np.cumsum([each.size for each in values])[:-1])
    elements = draw(move_elements([own.reshape(each.shape) for own, each in zip(numbers, values, strict=True)]))
    images = [draw(st.none() | blocked(isa, each.shape)) for each in values]
    memories = [
        Memory.contiguous(each.shape, storage) if image is None else Memory.of_image(image, storage)
        for image, each in zip(images, values, strict=True)
    ]
    rescaled = draw(st.booleans())
    rng = np.random.default_rng(0)
    tables = [
        rng.permutation(256).astype(np.uint8) if rescaled and position != 1 else None for position in range(len(values))
    ]
    image = draw(st.none() | blocked(isa, of(elements)))
    destination = Memory.contiguous(elements.shape, storage) if image is None else Memory.of_image(image, storage)
    try:
        kernel = move(isa, Move(tuple(memories), tuple(tables), destination, elements.reshape(-1), 9))
    except Declined:
        with pytest.raises(Declined):
            patterns(memories, destination, elements.reshape(-1), isa.lanes)
        return

    as_stored = [
        stored(each) if table is None else table[stored(each)] for each, table in zip(values, tables, strict=True)
    ]
    expected = np.concatenate([each.reshape(-1) for each in as_stored])[elements]
    inputs = [
        each.reshape(-1) if position is None else laid_out(position, stored(each))
        for position, each in zip(images, values, strict=True)
    ]
    if image is None:
        got = stored(run(isa, kernel, *inputs, dtype=storage))
        np.testing.assert_array_equal(got.reshape(elements.shape), expected)
    else:
        written = read_back(image, run(isa, kernel, *inputs))[..., : image.channels]
        np.testing.assert_array_equal(written, with_halo(image, expected.reshape(image.shape), 9))


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
def test_real_values(isa: Isa) -> None:
    values = np.random.default_rng(0).normal(size=(3, 50, 48)).astype(np.float32)
    elements = np.arange(values.size).reshape(3, 50, 2, 24).transpose(0, 2, 1, 3).reshape(-1)
    made = Move(
        (Memory.contiguous(values.shape, "float32"),), (None,), Memory.contiguous((3, 2, 50, 24), "float32"), elements
    )
    got = run(isa, move(isa, made), values.reshape(-1), dtype="float32")
    np.testing.assert_array_equal(got, values.reshape(-1)[elements])


@pytest.mark.parametrize("isa", RUNNABLE, ids=lambda isa: isa.name)
@pytest.mark.parametrize(("pixels", "channels"), [(64, 48), (49, 20), (100, 33)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_squares_are_transposed(isa: Isa, pixels: int, channels: int, dtype: str) -> None:
    values = np.random.default_rng(0).integers(-128, 128, (2, pixels, channels)).astype(dtype)
    elements = np.arange(values.size).reshape(values.shape).transpose(0, 2, 1)
    source, destination = (Memory.contiguous(shape, dtype) for shape in (values.shape, elements.shape))
    kernel = move(isa, Move((source,), (None,), destination, elements.reshape(-1)))
    assert kernel.facts["squares"]
    got = run(isa, kernel, values.reshape(-1), dtype=dtype)
    np.testing.assert_array_equal(got, values.reshape(-1)[elements.reshape(-1)])


def test_a_channel_shuffle_takes_two_loads_for_a_vector() -> None:
    """A block of 16 output channels contains 8 channels of each of two parts. The last block has only four channels."""
    image = Image(1, 28, 28, 58, 16)
    elements = np.arange(2 * 28 * 28 * 58).reshape(2, 28, 28, 58).transpose(1, 2, 3, 0).reshape(-1)
    whole = Memory.of_image(Image(1, 28, 28, 116, 16), "uint8")
    found, squares = patterns([Memory.of_image(image, "uint8")] * 2, whole, elements, 16)
    assert not squares
    assert sum(pattern.vectors for pattern in found) == 28 * 28 * 8
    assert {len(pattern.parts) for pattern in found} == {2}
    assert len(found) <= 3
    assert sum(len(pattern.progressions) for pattern in found) == 8, "one progression for each block of the destination"


def test_moves_of_scattered_elements_are_declined() -> None:
    isa = ISAS["x86-64-v3"]
    elements = np.random.default_rng(0).permutation(64 * 64)
    memory = Memory.contiguous((64, 64), "uint8")
    with pytest.raises(Declined, match=r"places|ways"):
        move(isa, Move((memory,), (None,), memory, elements))
    with pytest.raises(Declined, match="int64"):
        move(isa, Move((Memory.contiguous((64,), "int64"),), (None,), memory, np.zeros(64 * 64, np.int64)))
