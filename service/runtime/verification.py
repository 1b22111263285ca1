"""Compares a loaded model's outputs with expected ones, bit for bit. Runs wherever the artifact runs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.agreement import Comparison
from service.core.comparison import compare_outputs
from service.core.sequence import SequenceState
from service.core.vectors import sample_inputs, sample_kinds
from service.core.witnesses import CANONICAL, Statement, report
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
            comparisons.append(compare_outputs(outputs, arrays, numbers))
    return comparisons
