"""Tests that Octet's histograms equal those of the Prometheus library, bucket for bucket."""

from __future__ import annotations

import random
from bisect import bisect_left

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from service.api.ops.histograms import CountOf, Histograms
from service.api.ops.metrics import LATENCY_BUCKETS_S as BOUNDS


def test_the_text_equals_that_of_the_library() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histograms = Histograms("took_seconds", "How long.", ("model", "code"), BOUNDS)
    ours.register(histograms)
    ours.register(CountOf("answers", "How many.", ("model", "code"), histograms))
    reference = prometheus_client.Histogram(
        "took_seconds", "How long.", ("model", "code"), buckets=BOUNDS, registry=theirs
    )
    count = prometheus_client.Counter("answers", "How many.", ("model", "code"), registry=theirs)
    values = [*BOUNDS, 0.0, 11.0, *(10 ** random.Random(0).uniform(-6, 2) for _ in range(100))]
    for index, value in enumerate(values):
        labels = ("a", "200") if index % 3 else ('b"\n', "429")
        counts = [0] * (len(BOUNDS) + 1)
        counts[bisect_left(BOUNDS, value)] = 1
        histograms.labels(*labels).add(counts, value)
        reference.labels(*labels).observe(value)
        count.labels(*labels).inc()
    assert generate_latest(ours) == generate_latest(theirs)


def test_names_are_unique_and_all_labels_are_required() -> None:
    registry = CollectorRegistry()
    histograms = Histograms("took_seconds", "How long.", ("model",), BOUNDS)
    registry.register(histograms)
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Histograms("took_seconds", "Again.", ("model",), BOUNDS))
    with pytest.raises(ValueError, match="has the labels"):
        histograms.labels("a", "b")
