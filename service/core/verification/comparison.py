"""Compares outputs with expected ones. All checks, reports, commands and tests use this definition of "equal".

Two values are equal if they compare equal or if both are NaN. So a NaN equals every NaN, whatever its sign or payload,
two infinities are equal if their signs are equal, and 0.0 equals -0.0. All other values are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from service.core.models.arrays import Array
from service.core.verification.agreement import Comparison, OutputComparison

_INTEGERS = "iub"


def equal_values(one: Array, other: Array) -> NDArray[np.bool_]:
    """Compares two arrays of one shape element by element. Returns an array that is true where the values are equal."""
    equal = one == other
    if one.dtype.kind in _INTEGERS:
        return np.asarray(equal)
    return np.asarray(equal | ((one != one) & (other != other)))  # only NaN differs from itself


def largest_difference(one: Array, other: Array) -> float | None:
    """Returns the largest distance between values that are not equal; None if one of these is NaN or infinite."""
    differs = ~equal_values(one, other)
    if not differs.any():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(one[differs].astype(np.float64) - other[differs].astype(np.float64)).max())
    return largest if np.isfinite(largest) else None


def compare_output(pairs: Iterable[tuple[Array, Array]]) -> OutputComparison:
    """Compares one output of a model over all inputs.

    Args:
        pairs: for each input, the output and the expected output.
    """
    values = equal = 0
    largest: float | None = 0.0
    low = high = 0.0
    is_real = is_double = False
    for output, wanted in pairs:
        values += wanted.size
        is_real = is_real or wanted.dtype.kind not in _INTEGERS
        is_double = wanted.dtype == np.float64
        if output.shape != wanted.shape or output.dtype != wanted.dtype:
            largest = None
            continue
        equal += int(equal_values(output, wanted).sum())
        difference = largest_difference(output, wanted)
        largest = None if largest is None or difference is None else max(largest, difference)
        if wanted.dtype.kind not in _INTEGERS and wanted.size:
            finite = wanted[np.isfinite(wanted)].astype(np.float64)
            low, high = min(low, finite.min(initial=0.0)), max(high, finite.max(initial=0.0))
    # Both bounds are halved before the subtraction, because the distance between two float64 values may overflow.
    span = min(high / 2 - low / 2, np.finfo(np.float64).max / 2) * 2
    return OutputComparison(values, equal, is_real, largest, float(span), is_double)


def compare_outputs(
    outputs: Sequence[Sequence[Array]], expected: Mapping[str, Array], numbers: Sequence[int]
) -> Comparison:
    """Compares all outputs of a model.

    Args:
        outputs: for each input, the outputs in the signature's order.
        expected: the expected outputs; the key `INPUT.OUTPUT` contains the indices of the input and the output.
        numbers: the indices of the inputs to compare.
    """
    positions = range(len(outputs[numbers[0]])) if numbers else range(0)
    compared = (
        compare_output((outputs[number][position], expected[f"{number}.{position}"]) for number in numbers)
        for position in positions
    )
    return Comparison(tuple(numbers), tuple(compared))
