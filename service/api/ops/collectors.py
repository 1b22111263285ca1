"""Metrics that are read from the database, the store and the models at each scrape, instead of being counted at each
event.

So these metrics include builds of other processes, survive restarts, and cost predictions no time.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from service.cache import BlobStore
from service.db import BuildStore, LiveCountStore

if TYPE_CHECKING:
    from service.workers.inference import Registry
    from service.workers.tenant_planes import TenantPlanes

# Stages take between a millisecond (link) and minutes (codegen of a large model).
STAGE_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_ARTIFACT = ("model", "version", "target", "digest", "numerics")
_LIVE_DAYS, _MOST_TENSORS = 2, 10
_CACHE_SIZE_S = 30.0  # a computed size is reused for this long, because adding up a store of many blobs takes a while


class BuildCollector(Collector):
    """Metrics of the builds table."""

    def __init__(self, builds: BuildStore) -> None:
        self._builds = builds

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        statistics = self._builds.statistics(STAGE_BUCKETS_S)
        ended = CounterMetricFamily("octet_builds", "Builds that ended.", labels=("target", "outcome"))
        for (target, outcome), count in statistics.outcomes.items():
            ended.add_metric((target, outcome), count)
        yield ended
        queued = GaugeMetricFamily("octet_build_queue_depth", "Builds that wait for a worker.")
        queued.add_metric((), sum(statistics.queued.values()))
        yield queued
        duration = HistogramMetricFamily(
            "octet_build_duration_seconds", "Time of each stage of a build.", labels=("target", "stage")
        )
        for stage in statistics.durations:
            bounds = [
                (str(bound_s), float(count)) for bound_s, count in zip(STAGE_BUCKETS_S, stage.buckets, strict=True)
            ]
            duration.add_metric((stage.target, stage.stage), [*bounds, ("+Inf", float(stage.count))], stage.sum_s)
        yield duration

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())  # without this method, registering the collector would read the tables


class ModelCollector(Collector):
    """Metrics of the models in memory. Several of these may be versions of the same model."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[GaugeMetricFamily]:
        queued: dict[str, int] = defaultdict(int)
        admitted: dict[str, int] = defaultdict(int)
        artifacts = GaugeMetricFamily("octet_artifact_info", "The artifacts loaded here; always 1.", labels=_ARTIFACT)
        for served in self._registry.in_memory():
            identity = served.identity
            artifacts.add_metric(
                (identity.model, str(identity.version), identity.target, identity.artifact, identity.numerics), 1
            )
            queued[served.identity.model] += served.queued
            admitted[served.identity.model] += served.admitted
        yield artifacts
        yield _by_model("octet_queue_depth", "Predict requests that wait for their model.", queued)
        yield _by_model("octet_inflight_requests", "Predict requests admitted and not yet answered.", admitted)
        yield GaugeMetricFamily(
            "octet_model_memory_bytes", "Memory of all loaded models together.", value=self._registry.memory_bytes
        )

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())


class LiveCollector(Collector):
    """Metrics of the values that requests cause in the models, of today and yesterday (UTC)."""

    def __init__(self, live: LiveCountStore) -> None:
        self._live = live

    def collect(self) -> Iterator[GaugeMetricFamily]:
        clipped = GaugeMetricFamily(
            "octet_clipped_ratio",
            "Fraction of the values of a tensor that were clipped; the tensors of a model that clip most.",
            labels=("model", "version", "tensor"),
        )
        counted = GaugeMetricFamily(
            "octet_counted_requests", "Requests whose values were counted.", labels=("model", "version")
        )
        dropped = GaugeMetricFamily(
            "octet_counted_requests_dropped",
            "Requests whose values should be counted, but were not, because of the load.",
            labels=("model", "version"),
        )
        for each in self._live.recent(_LIVE_DAYS):
            of = each.model, str(each.version)
            counted.add_metric(of, each.samples)
            dropped.add_metric(of, each.dropped)
            worst = sorted(each.tensors(), key=lambda tensor: tensor.clipped_ratio, reverse=True)
            for tensor in worst[:_MOST_TENSORS]:
                clipped.add_metric((*of, tensor.stored.tensor), tensor.clipped_ratio)
        yield from (clipped, counted, dropped)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())


class TenantPlaneCollector(Collector):
    """Metrics of the tenants' data planes, if each tenant has one."""

    def __init__(self, planes: TenantPlanes) -> None:
        self._planes = planes

    def collect(self) -> Iterator[GaugeMetricFamily]:
        name, help = (
            "octet_tenant_plane_resident_bytes",
            "Memory of a tenant's data plane; an empty tenant is the operator.",
        )
        family = GaugeMetricFamily(name, help, labels=("tenant",))
        for tenant, size in self._planes.resident_bytes().items():
            family.add_metric((tenant,), size)
        yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())


class CacheCollector(Collector):
    """Metrics of the store."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._size_bytes, self._added_up_s = 0, float("-inf")

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if time.monotonic() - self._added_up_s > _CACHE_SIZE_S:
            self._size_bytes, self._added_up_s = self._blobs.total_bytes(), time.monotonic()
        yield GaugeMetricFamily("octet_cache_bytes", "Size of all stored blobs together.", value=self._size_bytes)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())


def _by_model(name: str, help: str, counts: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=("model",))
    for model, count in counts.items():
        family.add_metric((model,), count)
    return family
