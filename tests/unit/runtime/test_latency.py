"""Tests that the latency distribution covers all calls, and that its parts agree with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.core.models.signature import ModelSignature, TensorSpec
from service.runtime.latency import Latency, measure


class Instant:
    """A model that answers immediately."""

    signature = ModelSignature((TensorSpec("x", "INT8", (4, 2)),), (TensorSpec("y", "INT8", (4, 2)),))

    def __init__(self) -> None:
        self.calls = 0

    def run(self, inputs: Any, state: Any = None) -> Any:
        self.calls += 1
        return inputs


def test_every_call_is_in_the_histogram() -> None:
    taken_s = np.random.default_rng(0).lognormal(-7, 1, 1000)
    document = Latency(1, float(taken_s.sum()), taken_s).to_json()
    edges, calls = document["histogram"]["edges_s"], document["histogram"]["calls"]
    assert sum(calls) == document["calls"] == 1000
    assert len(edges) == len(calls) + 1
    assert (edges[0], edges[-1]) == (document["min_s"], document["p99_s"])
    assert calls[-1] >= 10  # the last bucket counts all longer calls


def test_percentiles_are_in_order() -> None:
    document = Latency(1, 1.0, np.arange(1, 101) / 1000).to_json()
    times = [document[f"{name}_s"] for name in ("min", "p50", "p90", "p99", "max")]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0.001, 0.1)


def test_a_batch_counts_as_several_samples() -> None:
    assert Latency(8, 2.0, np.full(10, 0.2)).to_json()["per_s"] == pytest.approx(40)


def test_calls_with_equal_times_have_a_distribution_too() -> None:
    assert sum(Latency(1, 1.0, np.full(10, 0.1)).to_json()["histogram"]["calls"]) == 10


def test_a_model_is_called_at_least_ten_times_and_its_batch_is_reported() -> None:
    model: Any = Instant()
    latency = measure(model, seconds=0)
    assert model.calls == len(latency.taken_s) + 1 >= 11
    assert latency.batch == 4
