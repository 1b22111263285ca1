"""Rounding in the oracle counts ties."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.qnn.numerics.scaling.affine import round_away
from service.compiler.qnn.numerics.scaling.fixed_point import rounding_divide_by_pot
from service.compiler.qnn.numerics.scaling.rounding import round_even, watch


@pytest.mark.parametrize(
    ("function", "values", "ties"),
    [
        (round_even, [0.5, 1.5, -2.5, 0.25, 1.0], 3),
        (round_away, [0.5, -1.5, 0.49, 3.0], 2),
        (lambda values: rounding_divide_by_pot(values, 2), [2, -2, 6, 4, 1], 3),
        (lambda values: rounding_divide_by_pot(values, 0), [2, 1], 0),
    ],
)
def test_ties_are_counted_while_they_are_watched(function: object, values: list[float], ties: int) -> None:
    array = np.array(values, np.int64 if isinstance(values[0], int) else np.float32)
    with watch() as seen:
        function(array)  # type: ignore[operator]
    assert seen.count == ties
    function(array)  # type: ignore[operator]
    assert seen.count == ties
