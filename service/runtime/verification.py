"""Holds a loaded model to expected answers, bit for bit. Runs wherever the artifact runs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.core.sequence import SequenceState
from service.core.vectors import sample_inputs
from service.runtime.model import Model


def verify(model: Model, vectors: bytes) -> dict[str, Any]:
    """`compare` with the oracle's answers, as they are attached to an artifact (`Report.VECTORS`)."""
    return compare(model, [("oracle", vectors)])


def compare(model: Model, vectors: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """Runs the model on the generated inputs (`core.vectors`) and holds it to each set of expected outputs.

    The inputs of a model that keeps state are the calls of one sequence.

    Args:
        vectors: (whose answers they are, an npz of arrays called `sample.output`); the first decides.

    Returns:
        `verified`, and for each set: how many samples and elements, the percentage that is equal, and the largest
        difference.
    """
    checks = []
    outputs: list[list[np.ndarray[Any, Any]]] | None = None
    for against, data in vectors:
        with np.load(io.BytesIO(data), allow_pickle=False) as expected:
            samples = 1 + max(int(name.split(".")[0]) for name in expected.files)
            if outputs is None:
                state = SequenceState(model.signature)
                outputs = [model.run(sample, state) for sample in sample_inputs(model.signature, samples)]
            checks.append(_compare(against, outputs, expected))
    return {"verified": checks[0]["equal_percent"] == 100.0, "checks": checks}


def _compare(against: str, outputs: list[list[np.ndarray[Any, Any]]], expected: Any) -> dict[str, Any]:
    elements = equal = 0
    largest = 0.0
    for index, sample in enumerate(outputs):
        for position, output in enumerate(sample):
            wanted = expected[f"{index}.{position}"]
            same = (output == wanted) if output.shape == wanted.shape and output.dtype == wanted.dtype else None
            elements += wanted.size
            if same is None:
                largest = float("inf")
                continue
            equal += int(same.sum())
            if not same.all():
                largest = max(largest, float(np.abs(output.astype(np.float64) - wanted.astype(np.float64)).max()))
    return {
        "against": against,
        "samples": len(outputs),
        "elements": elements,
        "equal_percent": 100.0 * equal / elements if elements else 100.0,
        "largest_difference": largest if np.isfinite(largest) else None,
    }
