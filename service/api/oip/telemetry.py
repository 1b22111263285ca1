"""Metrics of predict requests. Labels are looked up once per loaded model, not per request.

All of it is counted on the event loop, and of a request all at once when its answer was sent: it adds no latency.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from service.api.oip.timeline import Timeline
from service.api.ops.histograms import Histogram
from service.api.ops.metrics import Metrics
from service.api.ops.statistics import ModelStatistics
from service.api.ops.versions import Labels, Version
from service.core.errors import DeadlinePassed, NotReady, OctetError, QueueFull
from service.workers.inference import Identity

_SUCCESS = (200, "OK")
_REASONS: dict[type[OctetError], str] = {QueueFull: "queue_full", DeadlinePassed: "deadline", NotReady: "no_worker"}


class InferenceTelemetry:
    """Observes the inference package, as its `Observer`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def loaded(self, identity: Identity) -> LoadedModel:
        return LoadedModel(self._metrics, identity)


class LoadedModel:
    """Observes one loaded model, from its loading to its unloading, as the inference package's `ModelObserver`."""

    def __init__(self, metrics: Metrics, identity: Identity) -> None:
        self._labels = labels = _labels(identity)
        self._artifact = identity.artifact, identity.numerics
        self._versions, self._artifacts = metrics.versions, metrics.artifact_info
        self._version = metrics.versions.loaded(labels, self._artifact)
        self._queue = metrics.queue_duration.labels(*labels)
        self._batch = metrics.batch_size.labels(*labels)
        self._infer = metrics.compute_duration.labels(*labels, "infer")
        self._statistics = metrics.statistics.of(identity.model, identity.version)
        self._artifacts.labels(*labels, *self._artifact).set(1)

    def waited(self, waited_s: float) -> None:
        self._queue.observe(waited_s)

    def computed(self, requests: int, samples: int, run_s: float) -> None:
        self._batch.observe(requests)
        self._infer.observe(run_s)
        self._statistics.executions[samples].add(run_s)

    def unloaded(self) -> None:
        self._versions.unloaded(self._labels, self._artifact)
        if not self._version.artifacts[self._artifact]:  # it may be there again, with other batch sizes
            self._artifacts.remove(*self._labels, *self._artifact)


class RequestTelemetry:
    """Watches the requests of every model that come by one protocol: `rest` or `grpc`."""

    def __init__(self, metrics: Metrics, protocol: str) -> None:
        self._metrics, self._protocol = metrics, protocol
        self._models: WeakKeyDictionary[Version, _ModelRequests] = WeakKeyDictionary()

    def answered(self, identity: Identity, timeline: Timeline) -> None:
        """A request was answered, by what is loaded as `identity`. To be called when the answer was sent.

        One that comes long after the unloading is not counted.
        """
        labels = _labels(identity)
        version = self._metrics.versions.find(labels)
        if version is None:
            return
        requests = self._models.get(version)
        if requests is None:
            statistics = self._metrics.statistics.of(identity.model, identity.version)
            requests = self._models[version] = _ModelRequests(self._metrics, labels, self._protocol, statistics)
        requests.answered(timeline)

    def rejected(self, error: OctetError) -> None:
        """A request was refused."""
        reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), "invalid")
        self._metrics.requests_rejected.labels(reason).inc()

    def canceled(self) -> None:
        """A client left before its request was executed."""
        self._metrics.requests_rejected.labels("canceled").inc()


class _ModelRequests:
    """Watches the requests of one model version on one target."""

    def __init__(self, metrics: Metrics, labels: Labels, protocol: str, statistics: ModelStatistics) -> None:
        self._metrics, self._labels, self._protocol, self._statistics = metrics, labels, protocol, statistics
        self._input = metrics.compute_duration.labels(*labels, "input")
        self._output = metrics.compute_duration.labels(*labels, "output")
        self._answers: dict[int | str, Histogram] = {}

    def answered(self, timeline: Timeline) -> None:
        code, total_s = timeline.code, timeline.total_s
        if (input_s := timeline.input_s) is not None:
            self._input.observe(input_s)
        if (output_s := timeline.output_s) is not None:
            self._output.observe(output_s)
        if code not in self._answers:
            labels = *self._labels, self._protocol, str(code)
            self._answers[code] = self._metrics.request_duration.labels(*labels)
        self._answers[code].observe(total_s)
        if code not in _SUCCESS:
            self._statistics.failed(total_s)
            return
        stages = timeline.stages
        assert stages is not None  # it was computed
        assert input_s is not None
        assert output_s is not None
        self._statistics.succeeded(total_s, (stages.queued_s, input_s, stages.run_s, output_s))


def _labels(identity: Identity) -> Labels:
    return identity.model, str(identity.version), identity.target
