"""Tests of the analysis of moves: patterns and squares copy exactly the elements that the move describes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.moves import (
    MOST_ELEMENTS,
    PART_BITS,
    Memory,
    Pattern,
    Progression,
    Square,
    addresses_of,
    patterns,
)
from service.core.models.arrays import Array
from tests.support.moves import move_elements

LANES = 8


def number_elements(shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Returns arrays of these shapes whose elements are numbered across all arrays."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [
        np.arange(end - np.prod(shape), end, dtype=np.int64).reshape(shape)
        for end, shape in zip(ends, shapes, strict=True)
    ]


def offsets_of(progression: Progression, steps: tuple[int, ...]) -> Array:
    """Returns the offsets of each vector in the destination and the sources, `[vectors, offsets]`."""
    return np.asarray(progression.starts + np.arange(progression.count)[:, None] * np.array(steps))


def copied(parts: Sequence[Array], size: int, found: tuple[list[Pattern], list[Square]]) -> Array:
    """Copies the elements of `parts` as a kernel does, vector by vector."""
    destination, memories = np.full(size, -1), [part.reshape(-1) for part in parts]
    for pattern in found[0]:
        for progression in pattern.progressions:
            for start, *windows in offsets_of(progression, pattern.steps):
                loaded = [memories[part][at : at + LANES] for part, at in zip(pattern.parts, windows, strict=True)]
                destination[start : start + LANES] = np.concatenate(loaded)[list(pattern.order)]
    for square in found[1]:
        for progression in square.progressions:
            for start, at in offsets_of(progression, square.steps):
                for row in range(square.rows):
                    columns = memories[square.part][at + row + np.arange(square.columns) * square.step]
                    destination[start + row * square.to :][: square.columns] = columns
    return destination


@given(st.data())
def test_vectors_are_copied_as_the_elements_are(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6))
    channels = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    parts = number_elements([(1, height, width, count) for count in channels])
    wanted = data.draw(move_elements(parts))
    sources = [Memory.contiguous(part.shape, "uint8") for part in parts]
    try:
        found = patterns(sources, Memory.contiguous(wanted.shape, "uint8"), wanted.reshape(-1), LANES)
    except Declined:
        assume(False)
    np.testing.assert_array_equal(copied(parts, wanted.size, found), wanted.reshape(-1))


def test_a_copy_is_one_pattern() -> None:
    (part,) = number_elements([(4, 64)])
    memory = Memory.contiguous(part.shape, "uint8")
    (pattern,), squares = patterns([memory], memory, part.reshape(-1), LANES)
    assert squares == []
    assert (pattern.parts, pattern.order, pattern.steps) == ((0,), tuple(range(LANES)), (LANES, LANES))
    assert pattern.vectors == 256 // LANES


def test_a_transposed_matrix_consists_of_squares() -> None:
    (part,) = number_elements([(16, 32)])
    wanted = part.T
    found = patterns(
        [Memory.contiguous(part.shape, "uint8")], Memory.contiguous(wanted.shape, "uint8"), wanted.reshape(-1), LANES
    )
    assert found[0] == []
    assert sum(square.vectors for square in found[1]) == wanted.size // LANES
    np.testing.assert_array_equal(copied([part], wanted.size, found), wanted.reshape(-1))


def test_an_address_consists_of_the_source_and_the_offset() -> None:
    sources = [Memory.contiguous((3,), "uint8"), Memory.contiguous((5,), "uint8")]
    addresses = addresses_of(sources, np.array([2, 3, 7, -1]))
    assert addresses.tolist() == [2, 1 << PART_BITS, (1 << PART_BITS) + 4, -1]


@pytest.mark.parametrize(
    ("size", "elements", "reason"),
    [
        (16, np.zeros(MOST_ELEMENTS + 1, np.int64), f"more than {MOST_ELEMENTS}"),
        (16, np.arange(5), "5 elements, less than a vector"),
        (5, np.zeros(16, np.int64), "a source has fewer elements than a vector"),
        (4096, np.random.default_rng(1).permutation(4096), "from too many places"),
    ],
)
def test_moves_that_no_kernel_computes_are_declined(size: int, elements: Array, reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        patterns([Memory.contiguous((size,), "uint8")], Memory.contiguous((len(elements),), "uint8"), elements, LANES)
