"""The pattern of the positions that a loop's iterations write."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.kernels.trimming.ascending import Ascending


@pytest.mark.parametrize(
    ("least", "found"),
    [
        pytest.param([0, 1, 2, 3], Ascending(4, 1, 1, 0), id="one position each"),
        pytest.param([0, 4, 8, 10], Ascending(4, 1, 4, 1), id="the last tile begins earlier"),
        pytest.param([0, 0, 4, 4], Ascending(4, 2, 4, 0), id="two iterations for each tile"),
        pytest.param([0, 4, 8, 0, 4, 8], Ascending(3, 1, 4, 0), id="two passes"),
        pytest.param([0, 0, 0, 0], None, id="no position"),
        pytest.param([3, 2, 1, 0], None, id="descending"),
        pytest.param([2, 3, 4, 5], None, id="not from the beginning"),
        pytest.param([0, 9, 9, 9, 9, 9], None, id="too few after a jump"),
    ],
)
def test_patterns(least: list[int], found: Ascending | None) -> None:
    assert Ascending.of(np.array(least, np.int64)) == found


@pytest.mark.parametrize("least", [[0, 4, 8, 10], [0, 0, 4, 4, 8, 8], [0, 2, 3, 4], [0, 1, 1, 1]])
def test_no_iteration_that_writes_inside_the_length_is_left_out(least: list[int]) -> None:
    found = Ascending.of(np.array(least, np.int64))
    assert found is not None
    for length in range(1, max(least) + 3):
        needed = min((-(-length // found.step) + found.more) * found.run, found.period)
        assert all(position >= length for position in least[needed:])
