"""Views of tensors have NumPy's strides, and matrices in images have the offsets of the kernels' layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from service.compiler.kernels.layout import Halo, Image, laid_out
from service.compiler.kernels.matrices import Matrices, Strided

Move = tuple[str, Sequence[int]]


def moved(array: np.ndarray, moves: Sequence[Move]) -> tuple[np.ndarray, Strided | None]:
    view: Strided | None = Strided.of(array.shape)
    for kind, numbers in moves:
        assert view is not None
        match kind:
            case "permute":
                array, view = array.transpose(numbers), view.permuted(numbers)
            case "slice":
                axis, begin, end = numbers
                array = array[(slice(None),) * axis + (slice(begin, end),)]
                view = view.sliced(axis, begin, end)
            case _:
                array, view = array.reshape(numbers), view.reshaped(numbers)
    return array, view


HEADS: list[Move] = [("reshape", (2, 5, 3, 32)), ("permute", (0, 2, 1, 3))]
PART: list[Move] = [("slice", (2, 32, 64)), ("reshape", (2, 5, 2, 16)), ("permute", (2, 0, 1, 3))]
TOGETHER: list[Move] = [("reshape", (2, 5, 3, 1, 32)), ("slice", (2, 1, 2)), ("reshape", (2, 5, 1, 32))]


@pytest.mark.parametrize("moves", [HEADS, PART, TOGETHER, [("reshape", (10, 96))]], ids=str)
def test_moves_are_strides(moves: list[Move]) -> None:
    whole = np.arange(2 * 5 * 96).reshape(2, 5, 96)
    expected, view = moved(whole, moves)
    assert view is not None
    actual = np.lib.stride_tricks.as_strided(
        whole.reshape(-1)[view.offset :], view.shape, [stride * whole.itemsize for stride in view.strides]
    )
    np.testing.assert_array_equal(actual, expected)


def test_a_reshape_without_strides_is_not_a_view() -> None:
    _, view = moved(np.zeros((2, 5, 96)), [("permute", (0, 2, 1))])
    assert view is not None
    assert view.reshaped((2, 480)) is None


@pytest.mark.parametrize("halo", [Halo(), Halo(1, 0, 2, 0)], ids=["alone", "below another row"])
@pytest.mark.parametrize("moves", [HEADS, PART, TOGETHER], ids=str)
def test_matrices_of_whole_blocks_are_in_an_image(moves: list[Move], halo: Halo) -> None:
    shape = 2, 5, 1, 96
    image = Image(*shape, 16, halo)
    values = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    planes = laid_out(Image(*shape, 16), values)[: values.size].reshape(2, 6, 5, 16)
    memory = np.pad(planes, ((0, 0), (0, 0), (halo.top, halo.bottom), (0, 0))).reshape(-1)
    expected, view = moved(values.reshape(2, 5, 96), moves)
    assert view is not None
    found = Matrices.within(image, view)
    assert found is not None
    for position in np.ndindex(*found.batch):
        for row in range(found.rows):
            for column in range(found.columns):
                run, lane = divmod(column, 16)
                at = found.start(position) + row * found.row + run * found.block + lane
                assert memory[at] == expected[(*position, row, column)]


@pytest.mark.parametrize(
    "moves",
    [
        [("reshape", (2, 5, 12, 8)), ("permute", (0, 2, 1, 3))],
        [("slice", (2, 8, 40))],
        [("reshape", (2, 5, 3, 32)), ("permute", (0, 2, 3, 1))],
        [("reshape", (2, 3, 160))],
    ],
    ids=["half blocks", "from within a block", "columns of rows", "over several pixels"],
)
def test_other_matrices_are_not_in_an_image(moves: list[Move]) -> None:
    _, view = moved(np.zeros((2, 5, 96)), moves)
    assert view is not None
    assert Matrices.within(Image(2, 5, 1, 96, 16), view) is None
