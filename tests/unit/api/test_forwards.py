"""What a data plane says that it forwarded, as metrics."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from service.api.data_plane.reports import Reports
from service.api.ops.metrics import LATENCY_BUCKETS_S, Metrics


def test_forwards_are_counted_by_worker_and_model() -> None:
    metrics = Metrics()
    counts = [0] * (len(LATENCY_BUCKETS_S) + 1)
    counts[1] = 3
    forward = {"worker": "w1", "model": "digits", "forwarded": 4, "retried": 1, "failed": 0}
    report: dict[str, Any] = {"models": [], "rejected": {}, "not_allowed": {}}
    for hop in ({"hop": {"counts": counts, "sum": 0.0003}}, {}):
        Reports(metrics).count({**report, "forwards": [forward | hop]})
    found = {
        (sample.name, sample.labels.get("outcome")): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.labels.get("worker") == "w1" and sample.labels["model"] == "digits"
    }
    assert found["octet_forwards_total", "sent"] == 8
    assert found["octet_forwards_total", "retried"] == 2
    assert ("octet_forwards_total", "failed") not in found
    assert found["octet_hop_duration_seconds_count", None] == 3
