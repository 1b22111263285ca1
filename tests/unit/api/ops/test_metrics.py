"""Tests of metrics about builds and the cache. Those of predictions are in `integration/data_plane/test_metrics.py`."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from service.api.ops.metrics import LATENCY_BUCKETS_S
from service.core.errors import BuildFailed
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, control_plane
from tests.support.live_counts import add_counts, counts_of

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(plane: ControlPlane) -> Samples:
    response = plane.client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_builds_are_counted_by_target_and_outcome(plane: ControlPlane) -> None:
    plane.push()
    plane.succeed()
    plane.push(target="aarch64")
    plane.fail(BuildFailed())
    samples = scrape(plane)
    assert samples["octet_builds_total", (("outcome", "succeeded"), ("target", HOST_TARGET))] == 1
    assert samples["octet_builds_total", (("outcome", "failed"), ("target", "aarch64"))] == 1


def test_the_queue_depth_is_the_number_of_queued_builds(plane: ControlPlane) -> None:
    assert scrape(plane)["octet_build_queue_depth", ()] == 0
    plane.push()
    plane.push(target="aarch64")
    assert scrape(plane)["octet_build_queue_depth", ()] == 2
    plane.claim()
    assert scrape(plane)["octet_build_queue_depth", ()] == 1


def test_stages_have_histograms(plane: ControlPlane) -> None:
    plane.push()
    plane.succeed()
    samples = scrape(plane)
    labels = (("stage", "codegen"), ("target", HOST_TARGET))
    assert samples["octet_build_duration_seconds_count", labels] == 1
    buckets = [
        (float(dict(key)["le"]), value)
        for (name, key), value in samples.items()
        if name == "octet_build_duration_seconds_bucket" and set(labels) <= set(key)
    ]
    counts = [count for _, count in sorted(buckets)]
    assert counts == sorted(counts)
    assert counts[-1] == 1


def test_the_cache_size_is_the_size_of_its_blobs(plane: ControlPlane) -> None:
    plane.push()
    assert scrape(plane)["octet_cache_bytes", ()] == plane.services.layout.blobs.total_bytes() > len(MODEL)


def test_predictions_have_buckets_from_50_microseconds_to_10_seconds() -> None:
    assert (min(LATENCY_BUCKETS_S), max(LATENCY_BUCKETS_S)) == (50e-6, 10.0)
    assert list(LATENCY_BUCKETS_S) == sorted(set(LATENCY_BUCKETS_S))


def test_the_tensors_that_clip_are_named(tmp_path: Path) -> None:
    with control_plane(tmp_path, saturation_share=0.001) as plane:
        plane.push()
        add_counts(plane.services, "digits", counts_of(above=5, inside=95), counts_of(below=9), dropped=3)
        samples = scrape(plane)
    model = ("model", "digits"), ("version", "1")
    assert samples["octet_clipped_ratio", (model[0], ("tensor", "conv"), model[1])] == 0.05
    assert samples["octet_clipped_ratio", (model[0], ("tensor", "relu"), model[1])] == 0
    assert samples["octet_counted_requests", model] == 10
    assert samples["octet_counted_requests_dropped", model] == 3


def test_a_server_that_samples_nothing_has_no_metrics_of_it(tmp_path: Path) -> None:
    with control_plane(tmp_path, saturation_share=0) as plane:
        assert not [name for name, _ in scrape(plane) if "clipped" in name or "counted" in name]
