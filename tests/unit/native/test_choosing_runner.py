"""A runner that calls the one of several whose shapes its inputs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from service.core.buffers import as_aligned
from service.native import Array, as_runner, choosing_runner

SHAPES: Sequence[Sequence[Sequence[int]]] = ([[1, 4], [4]], [[1, 8], [8]], [[1, 8], [4]])


def adding(number: int) -> Callable[[list[Array]], Sequence[Array]]:
    return lambda tensors: [tensors[0] + number]


@pytest.fixture
def choose() -> Any:
    return choosing_runner([(as_runner(adding(place)), shapes) for place, shapes in enumerate(SHAPES)])


def tensors(shapes: Sequence[Sequence[int]]) -> list[Any]:
    return [tvm_ffi.from_dlpack(as_aligned(np.zeros(shape, np.int32))) for shape in shapes]


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_the_shapes_of_all_inputs_decide(choose: Any, place: int) -> None:
    (output,) = choose(tensors(SHAPES[place]))
    found = np.from_dlpack(output)
    assert found.shape == tuple(SHAPES[place][0])
    assert (found == place).all()


@pytest.mark.parametrize("shapes", [[[1, 4], [8]], [[1, 5], [5]], [[1, 4]], []])
def test_inputs_of_other_shapes_are_refused(choose: Any, shapes: Sequence[Sequence[int]]) -> None:
    with pytest.raises(ValueError, match="no runner takes inputs of these shapes"):
        choose(tensors(shapes))
