"""Compares a loaded model's outputs with expected ones, bit for bit. Runs wherever the artifact runs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.sequence import SequenceState
from service.core.vectors import sample_inputs, sample_kinds
from service.core.witnesses import CANONICAL, Comparison, Statement, report
from service.runtime.model import Model

Array = NDArray[Any]


def verify(model: Model, vectors: bytes) -> dict[str, Any]:
    """Compares with the canonical form's answers, as they are attached to an artifact (`Report.VECTORS`).

    Returns:
        `core.witnesses.report`.
    """
    (comparison,) = compare(model, [vectors])
    return verdict(comparison)


def verdict(comparison: Comparison) -> dict[str, Any]:
    """`core.witnesses.report` of a comparison with the canonical form's answers."""
    kinds = sample_kinds(len(comparison.inputs))
    return report([Statement(CANONICAL, comparison)], [], kinds, "an artifact carries no other answers")


def compare(model: Model, expected: Sequence[bytes]) -> list[Comparison]:
    """Runs the model on the generated inputs (`core.vectors`) and compares with each set of expected outputs.

    The inputs of a model that keeps state are the calls of one sequence.

    Args:
        expected: npz files of arrays called `sample.output`; the first has all samples, others may lack some.
    """
    comparisons = []
    outputs: list[list[Array]] | None = None
    for data in expected:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            numbers = sorted({int(name.split(".")[0]) for name in arrays.files})
            if outputs is None:
                state = SequenceState(model.signature)
                outputs = [model.run(sample, state) for sample in sample_inputs(model.signature, len(numbers))]
            comparisons.append(_compare(outputs, arrays, numbers))
    return comparisons


def _compare(outputs: Sequence[Sequence[Array]], expected: Mapping[str, Array], numbers: Sequence[int]) -> Comparison:
    values = equal = 0
    largest = 0.0
    steps: int | None = None
    for number in numbers:
        for position, output in enumerate(outputs[number]):
            wanted = expected[f"{number}.{position}"]
            values += wanted.size
            if output.shape != wanted.shape or output.dtype != wanted.dtype:
                largest = np.inf
                continue
            equal += int((output == wanted).sum())
            difference = _largest_difference(output, wanted)
            largest = max(largest, difference)
            if output.dtype.kind in "iu":
                steps = max(steps or 0, int(difference))
    return Comparison(tuple(numbers), values, equal, largest if np.isfinite(largest) else None, steps)


def _largest_difference(output: Array, wanted: Array) -> float:
    """Infinity where one is no number, or two are infinitely far apart."""
    differs = output != wanted
    if not differs.any():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(output[differs].astype(np.float64) - wanted[differs].astype(np.float64)).max())
    return largest if np.isfinite(largest) else np.inf
