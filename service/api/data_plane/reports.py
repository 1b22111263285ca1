"""Adds the counts in the data plane's reports to the metrics."""

from __future__ import annotations

from service.api.ops.histograms import Histogram
from service.api.ops.metrics import Metrics
from service.api.ops.versions import Labels
from service.workers.data_plane.messages import Changes, HistogramChange, Phase, Report

_COMPUTE_PHASES: tuple[Phase, ...] = ("input", "infer", "output")


class Reports:
    """Adds reports to the metrics. For the event loop's thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def count(self, report: Report) -> None:
        for each in report["models"]:
            self._count_model((each["model"], each["version"], each["target"]), each["changes"])
        for reason, count in report["rejected"].items():
            self._metrics.requests_rejected.labels(reason).inc(count)
        for reason, count in report["not_allowed"].items():
            self._metrics.requests_not_allowed.labels(reason).inc(count)
        self._metrics.forwards.count(report.get("forwards", []))
        self._metrics.cards.update(report.get("cards", []))
        self._metrics.versions.update({(each["model"], each["version"], each["target"]) for each in report["models"]})

    def _count_model(self, labels: Labels, changes: Changes) -> None:
        metrics = self._metrics
        for answer in changes["answers"]:
            histogram = metrics.request_duration.labels(*labels, answer["protocol"], answer["code"])
            _add(histogram, answer["total"])
        for phase in _COMPUTE_PHASES:
            if phase in changes:
                _add(metrics.compute_duration.labels(*labels, phase), changes[phase])
        if "queue" in changes:
            _add(metrics.queue_duration.labels(*labels), changes["queue"])
        if "batch" in changes:
            _add(metrics.batch_size.labels(*labels), changes["batch"])


def _add(histogram: Histogram, change: HistogramChange) -> None:
    histogram.add(change["counts"], change["sum"])
