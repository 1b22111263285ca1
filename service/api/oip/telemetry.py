"""Metrics of predict requests. Labels are looked up once per loaded model, not per request.

All of it is counted on the event loop, and of a request all at once when its answer was sent: it adds no latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from weakref import WeakKeyDictionary

import numpy as np

from service.api.oip.timeline import Timeline
from service.api.ops.histograms import Histogram
from service.api.ops.metrics import Metrics
from service.api.ops.statistics import ModelStatistics, Numbers
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

    def waited(self, waits_s: Numbers) -> None:
        self._queue.observe_all(waits_s)

    def computed(self, requests: Numbers, samples: Numbers, run_s: Numbers) -> None:
        self._batch.observe_all(requests)
        self._infer.observe_all(run_s)
        for size in np.unique(samples):
            self._statistics.executions[int(size)].add_all(run_s[samples == size])

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
        if (requests := self._requests(identity)) is not None:
            requests.answered(timeline)

    def all_answered(self, identity: Identity, code: int | str, times: Mapping[str, Numbers]) -> None:
        """As `answered` for each of `[n]` requests with that code.

        Args:
            times: those of `Timeline` and `Stages`, and of `FRONT_FIELDS`, by name.
        """
        if (requests := self._requests(identity)) is not None:
            requests.all_answered(code, times)

    def rejected(self, error: OctetError, count: int = 1) -> None:
        """Requests were refused."""
        reason = next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), "invalid")
        self._metrics.requests_rejected.labels(reason).inc(count)

    def canceled(self, count: int = 1) -> None:
        """Clients left before their requests were executed."""
        self._metrics.requests_rejected.labels("canceled").inc(count)

    def _requests(self, identity: Identity) -> _ModelRequests | None:
        """None where its version is told of no more."""
        labels = _labels(identity)
        version = self._metrics.versions.find(labels)
        if version is None:
            return None
        if version not in self._models:
            statistics = self._metrics.statistics.of(identity.model, identity.version)
            self._models[version] = _ModelRequests(self._metrics, labels, self._protocol, statistics)
        return self._models[version]


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
        self._answers_with(code).observe(total_s)
        if code not in _SUCCESS:
            self._statistics.failed(total_s)
            return
        stages = timeline.stages
        assert stages is not None  # it was computed
        assert input_s is not None
        assert output_s is not None
        self._statistics.succeeded(total_s, (stages.queued_s, input_s, stages.run_s, output_s))

    def all_answered(self, code: int | str, times: Mapping[str, Numbers]) -> None:
        arrived_s, prepared_s, ran_s, ended_s = (
            times[name] for name in ("arrived_s", "prepared_s", "ran_s", "ended_s")
        )
        total_s = np.where(ended_s > 0, ended_s, monotonic()) - arrived_s
        input_s, output_s = (prepared_s - arrived_s)[prepared_s > 0], (ended_s - ran_s)[(ran_s > 0) & (ended_s > 0)]
        self._input.observe_all(input_s)
        self._output.observe_all(output_s)
        self._answers_with(code).observe_all(total_s)
        if code in _SUCCESS:
            queued_s = times["taken_s"] - times["submitted_s"]
            self._statistics.all_succeeded(total_s, (queued_s, input_s, times["run_s"], output_s))
        else:
            self._statistics.all_failed(total_s)

    def _answers_with(self, code: int | str) -> Histogram:
        if code not in self._answers:
            labels = *self._labels, self._protocol, str(code)
            self._answers[code] = self._metrics.request_duration.labels(*labels)
        return self._answers[code]


def _labels(identity: Identity) -> Labels:
    return identity.model, str(identity.version), identity.target
