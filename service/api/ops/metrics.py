"""The metrics of `/metrics`. The data plane counts predict requests. Gauges are read at each scrape.

Clients never choose the value of a label, for example with the name of a tensor. The labels `model`, `version` and
`target` describe a model that is loaded here.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from service.api.ops.forwards import Forwards
from service.api.ops.gpus import Gpus
from service.api.ops.histograms import CountOf, Histograms
from service.api.ops.versions import Versions

# int8 vision models take 0.3 to 30 ms, but the Prometheus library's default buckets start at 5 ms.
LATENCY_BUCKETS_S = (
    *(50e-6, 100e-6, 250e-6, 500e-6),
    *(1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3),
    *(1.0, 2.5, 5.0, 10.0),
)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
_MODEL = ("model", "version", "target")

disable_created_metrics()  # type: ignore[no-untyped-call]  # avoids one unused time series per metric and label set


class Metrics:
    """The metrics of one application, in a registry of its own.

    Attributes:
        registry: the registry in which collectors of other packages can be registered.
        versions: the model versions that the metrics include.
        cards: the memory of GPUs.
        request_duration: the time from the last byte of a predict request to its response. `protocol` is `rest` or
            `grpc`.
        requests_not_allowed: requests refused because of their key; `reason` is the error's code.
        requests_rejected: `reason` is queue_full, deadline, no_worker, canceled or invalid.
        forwards: counts the requests sent to workers, and how much longer each took than the time that its worker
            reported.
        queue_duration: the time from the admission of a request to the start of its computation.
        compute_duration: `phase` is input, infer or output.
        batch_size: the number of requests that are computed together.
        cache_hits: build requests answered from a cache; `tier` is `artifact` (an existing build answers a new
            request).
        cache_misses: build requests that had to be computed, with the same label.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # the server's memory, CPU time, file descriptors and start time
        answers = *_MODEL, "protocol", "code"
        self.request_duration = self._histogram(
            "octet_request_duration_seconds", "Time to answer a predict request.", answers
        )
        self.registry.register(CountOf("octet_requests", "Predict requests answered.", answers, self.request_duration))
        self.queue_duration = self._histogram(
            "octet_queue_duration_seconds", "Time that a predict request waited for its model.", _MODEL
        )
        self.compute_duration = self._histogram(
            "octet_compute_duration_seconds", "Time of each phase of a prediction.", (*_MODEL, "phase")
        )
        self.requests_rejected = self._counter(
            "octet_requests_rejected", "Predict requests refused, by reason.", ("reason",)
        )
        self.requests_not_allowed = self._counter(
            "octet_requests_not_allowed", "Requests of all kinds refused for their API key, by reason.", ("reason",)
        )
        self.forwards = Forwards(LATENCY_BUCKETS_S)
        self.registry.register(self.forwards)
        self.batch_size = self._histogram("octet_batch_size", "Requests computed together.", _MODEL, _BATCH_BUCKETS)
        self.cache_hits = self._counter("octet_cache_hits", "Requests answered from a cache.", ("tier",))
        self.cache_misses = self._counter("octet_cache_misses", "Requests that a cache could not answer.", ("tier",))
        by_model = self.request_duration, self.queue_duration, self.compute_duration, self.batch_size
        self.versions = Versions(by_model)
        self.cards = Gpus()
        self.registry.register(self.cards)

    def rejections(self) -> dict[str, float]:
        """Returns the number of refused predict requests, by reason."""
        (family,) = self.requests_rejected.collect()
        return {each.labels["reason"]: each.value for each in family.samples}

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format, version 0.0.4."""
        return generate_latest(self.registry)

    def _histogram(
        self, name: str, help: str, labels: tuple[str, ...], buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Histograms:
        histograms = Histograms(name, help, labels, buckets)
        self.registry.register(histograms)
        return histograms

    def _counter(self, name: str, help: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, help, labels, registry=self.registry)
