"""Tests of the metrics of requests that a data plane reports as forwarded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from service.api.data_plane.reports import Reports
from service.api.ops.forwards import KEPT_S, Forwards
from service.api.ops.metrics import LATENCY_BUCKETS_S, Metrics
from service.workers.data_plane.messages import ForwardCounts, HistogramChange, Report

HOP: HistogramChange = {"counts": [0, 3, *[0] * (len(LATENCY_BUCKETS_S) - 1)], "sum": 0.0003}


def forward(worker: str = "w1", pool: str = "old", model: str = "digits") -> ForwardCounts:
    return {"worker": worker, "pool": pool, "model": model, "forwarded": 4, "retried": 1, "failed": 0}


def samples(text: bytes) -> dict[tuple[str, str, str, str | None], float]:
    return {
        (sample.name, sample.labels["pool"], sample.labels["model"], sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.labels.get("pool") and "le" not in sample.labels
    }


def test_forwards_are_counted_by_pool_and_model() -> None:
    metrics = Metrics()
    report: Report = {"gather": 0, "models": [], "rejected": {}, "not_allowed": {}, "used": {}}
    Reports(metrics).count({**report, "forwards": [{**forward("w1"), "hop": HOP}, forward("w2")]})
    found = samples(metrics.text())
    assert found["octet_forwards_total", "old", "digits", "sent"] == 8
    assert found["octet_forwards_total", "old", "digits", "retried"] == 2
    assert ("octet_forwards_total", "old", "digits", "failed") not in found
    assert found["octet_hop_duration_seconds_count", "old", "digits", None] == 3
    assert b'"w1"' not in metrics.text()  # no label contains the id of a worker, because it changes with each start


def test_unused_counts_are_dropped() -> None:
    now_s = 0.0
    forwards = Forwards(LATENCY_BUCKETS_S, lambda: now_s)
    registry = CollectorRegistry()
    registry.register(forwards)
    forwards.count([{**forward(model="once"), "hop": HOP}, {**forward(model="often"), "hop": HOP}])
    now_s = KEPT_S - 1
    forwards.count([forward(model="often")])
    assert {model for _, _, model, _ in samples(generate_latest(registry))} == {"once", "often"}
    now_s = KEPT_S + 1
    forwards.count([])
    assert {model for _, _, model, _ in samples(generate_latest(registry))} == {"often"}
