"""Measures how long a model takes to answer on this machine, call after call, and how much that varies."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.artifacts.sequence import SequenceState
from service.core.models.arrays import Array
from service.core.verification.vectors import sample_inputs
from service.runtime.model import Model

_WARM_UP = 0.1  # this fraction of the measuring time is spent on warm-up calls
_FEWEST_CALLS = 10
_BINS = 24
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class Latency:
    """The times of calls of one model, one after the other.

    Attributes:
        batch: the number of samples in a call.
        elapsed_s: the time from the first call to the end of the last.
        taken_s: `[calls] float64`, the time of each call.
    """

    batch: int
    elapsed_s: float
    taken_s: Array

    def to_json(self) -> dict[str, Any]:
        """Returns the distribution. The last bin of the histogram contains all calls that took longer than 99 % of
        them.
        """
        percentiles = dict(zip(PERCENTILES, np.percentile(self.taken_s, PERCENTILES).tolist(), strict=True))
        low, high = float(self.taken_s.min()), percentiles[PERCENTILES[-1]]
        edges = np.linspace(low, high, _BINS + 1)
        counts, _ = np.histogram(np.minimum(self.taken_s, high), edges)
        return {
            "batch": self.batch,
            "calls": len(self.taken_s),
            "per_s": self.batch * len(self.taken_s) / self.elapsed_s,
            "min_s": low,
            **{f"p{percentile}_s": value for percentile, value in percentiles.items()},
            "max_s": float(self.taken_s.max()),
            "histogram": {"edges_s": edges.tolist(), "calls": counts.tolist()},
        }


def measure(model: Model, inputs: Sequence[Array] | None = None, *, seconds: float = 2.0) -> Latency:
    """Calls `model` for about `seconds`, and at least ten times, after warming up for a tenth of that.

    A call is `Model.run`: the check of its inputs and the copy of its outputs are included. The calls of a model that
    keeps state are one sequence.

    Args:
        inputs: the inputs of each call; random values by default.
    """
    call_inputs = sample_inputs(model.signature, 2)[1] if inputs is None else inputs  # the second sample is random
    _call(model, call_inputs, _WARM_UP * seconds, 1)
    taken_s, elapsed_s = _call(model, call_inputs, seconds, _FEWEST_CALLS)
    specs = model.signature.inputs
    batch = specs[0].shape[0] if specs and specs[0].shape else 1
    return Latency(batch, elapsed_s, taken_s)


def _call(model: Model, inputs: Sequence[Array], seconds: float, fewest: int) -> tuple[Array, float]:
    taken_s = array("d")
    clock, state = time.perf_counter, SequenceState(model.signature)
    started_s = ended_s = clock()
    while len(taken_s) < fewest or ended_s - started_s < seconds:
        began_s = clock()
        model.run(inputs, state)
        ended_s = clock()
        taken_s.append(ended_s - began_s)
    return np.frombuffer(taken_s), ended_s - started_s
