"""What happens to predict requests, as metrics. Labels are looked up once per loaded model, not per request."""

from __future__ import annotations

import collections

from prometheus_client import Counter, Histogram

from service.api.metrics import Metrics
from service.api.statistics import ModelStatistics
from service.core.errors import DeadlinePassed, NotReady, OctetError, QueueFull
from service.workers.inference import Identity

Counts = collections.Counter[tuple[str, ...]]
_SUCCESS = (200, "OK")
_REASONS: dict[type[OctetError], str] = {QueueFull: "queue_full", DeadlinePassed: "deadline", NotReady: "no_worker"}


class InferenceTelemetry:
    """Watches the inference room: its `Observer`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._loaded: Counts = collections.Counter()

    def loaded(self, identity: Identity) -> LoadedModel:
        return LoadedModel(self._metrics, identity, self._loaded)


class LoadedModel:
    """Watches one loaded model, from its loading to its unloading: the inference room's `ModelObserver`."""

    def __init__(self, metrics: Metrics, identity: Identity, loaded: Counts) -> None:
        """
        Args:
            loaded: how often each artifact is loaded, by its labels.
        """
        labels = _labels(identity)
        self._inflight = metrics.inflight_requests.labels(identity.model)
        self._depth = metrics.queue_depth.labels(identity.model)
        self._queue = metrics.queue_duration.labels(*labels)
        self._batch = metrics.batch_size.labels(*labels)
        self._infer = metrics.compute_duration.labels(*labels, "infer")
        self._statistics = metrics.statistics.of(identity.model, identity.version)
        self._artifacts, self._loaded = metrics.artifact_info, loaded
        self._artifact = *labels, identity.artifact, identity.numerics
        self._loaded[self._artifact] += 1
        self._artifacts.labels(*self._artifact).set(1)

    def admitted(self) -> None:
        self._inflight.inc()

    def released(self) -> None:
        self._inflight.dec()

    def queued(self) -> None:
        self._depth.inc()

    def dequeued(self, waited_s: float) -> None:
        self._depth.dec()
        self._queue.observe(waited_s)
        self._statistics.queue.add(waited_s)

    def batched(self, requests: int, samples: int, duration_s: float) -> None:
        self._batch.observe(requests)

    def inferred(self, duration_s: float, samples: int) -> None:
        self._infer.observe(duration_s)
        self._statistics.compute_infer[samples].add(duration_s)

    def unloaded(self) -> None:
        self._loaded[self._artifact] -= 1
        if not self._loaded[self._artifact]:  # the same artifact may be there again, with other batch sizes
            self._artifacts.remove(*self._artifact)


class RequestTelemetry:
    """Watches the requests of every model that come by one protocol: `rest` or `grpc`."""

    def __init__(self, metrics: Metrics, protocol: str) -> None:
        self._metrics, self._protocol = metrics, protocol
        self._models: dict[tuple[str, str, str], ModelRequests] = {}

    def of(self, identity: Identity) -> ModelRequests:
        labels = _labels(identity)
        if labels not in self._models:
            statistics = self._metrics.statistics.of(identity.model, identity.version)
            self._models[labels] = ModelRequests(self._metrics, labels, self._protocol, statistics)
        return self._models[labels]

    def rejected(self, error: OctetError) -> None:
        """A request was refused."""
        reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), "invalid")
        self._metrics.requests_rejected.labels(reason).inc()

    def canceled(self) -> None:
        """A client left before its request was executed."""
        self._metrics.requests_rejected.labels("canceled").inc()


class ModelRequests:
    """Watches the requests of one model version on one target."""

    def __init__(
        self, metrics: Metrics, labels: tuple[str, str, str], protocol: str, statistics: ModelStatistics
    ) -> None:
        self._metrics, self._labels, self._protocol, self._statistics = metrics, labels, protocol, statistics
        self._input = metrics.compute_duration.labels(*labels, "input")
        self._output = metrics.compute_duration.labels(*labels, "output")
        self._answers: dict[int | str, tuple[Histogram, Counter]] = {}

    def prepared(self, duration_s: float) -> None:
        """The inputs were parsed and decoded."""
        self._input.observe(duration_s)
        self._statistics.compute_input.add(duration_s)

    def rendered(self, duration_s: float) -> None:
        """The outputs were written as a response."""
        self._output.observe(duration_s)
        self._statistics.compute_output.add(duration_s)

    def answered(self, code: int | str, duration_s: float) -> None:
        """A request was answered with the protocol's `code`, `duration_s` after its last byte had arrived."""
        if code not in self._answers:
            labels = *self._labels, self._protocol, str(code)
            self._answers[code] = self._metrics.request_duration.labels(*labels), self._metrics.requests.labels(*labels)
        duration, count = self._answers[code]
        duration.observe(duration_s)
        count.inc()
        self._statistics.answered(code in _SUCCESS, duration_s)


def _labels(identity: Identity) -> tuple[str, str, str]:
    return identity.model, str(identity.version), identity.target
