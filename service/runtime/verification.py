"""Compares a loaded model's outputs with expected ones, bit for bit. Runs wherever the artifact runs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.core.artifacts.sequence import SequenceState
from service.core.models.arrays import Array
from service.core.verification.agreement import Comparison
from service.core.verification.comparison import compare_outputs
from service.core.verification.vectors import PATTERNS, input_kinds, read_probes, sample_inputs
from service.core.verification.witnesses import CANONICAL, Statement, report
from service.runtime.model import Model


def verify(model: Model, vectors: bytes, probes: bytes | None = None) -> dict[str, Any]:
    """Compares a model's outputs with those of the canonical form.

    Args:
        vectors, probes: the reports `Report.VECTORS` and `Report.PROBES` that are attached to the artifact.

    Returns:
        The result of `core.verification.witnesses.report`.
    """
    (comparison,) = compare(model, [vectors], [] if probes is None else [probes])
    return verdict(comparison)


def verdict(comparison: Comparison) -> dict[str, Any]:
    """Returns the report (`core.verification.witnesses.report`) of a comparison with the canonical form's outputs."""
    kinds = input_kinds(PATTERNS, len(comparison.inputs))
    return report([Statement(CANONICAL, comparison)], [], kinds, "the artifact contains no other expected outputs")


def compare(model: Model, expected: Sequence[bytes], probes: Sequence[bytes] = ()) -> list[Comparison]:
    """Runs the model on generated inputs (`core.verification.vectors`), and compares with each set of expected outputs.

    The inputs of a model that keeps state are the calls of one sequence.

    Args:
        expected: npz files of arrays called `sample.output`; the first has all samples, others may lack some.
        probes: npz files of the same form, and in the same order, for inputs that the oracle chose. The first one has
            these inputs too, as `core.verification.vectors.read_probes` reads them. The chosen inputs are numbered
            after the generated ones.
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
    if not probes:
        return comparisons
    first = len(outputs or ())
    chosen = [model.run(sample) for sample in read_probes(probes[0], model.signature)]
    return [
        comparison.merge(_compare_probes(chosen, data), first)
        for comparison, data in zip(comparisons, probes, strict=True)
    ]


def _compare_probes(outputs: Sequence[Sequence[Array]], data: bytes) -> Comparison:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        numbers = sorted({int(name.split(".")[0]) for name in arrays.files if not name.startswith("input.")})
        return compare_outputs(outputs, arrays, numbers)
