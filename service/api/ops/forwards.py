"""Counts of the requests that an API forwarded to workers.

Workers come and go during a process's life, so requests are counted by pool and model, not by worker. Models come and
go too, so the counts of a pool and model are dropped when they have not changed for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Literal

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from service.api.ops.histograms import Histograms
from service.workers.data_plane.messages import ForwardCounts

KEPT_S = 3600.0  # how long counts are exported after they last changed
_OUTCOMES: Mapping[str, Literal["forwarded", "retried", "failed"]] = {
    "sent": "forwarded",
    "retried": "retried",
    "failed": "failed",
}  # label -> its name in the data plane's reports
_LABELS = ("pool", "model")

Labels = tuple[str, str]


class Forwards(Collector):
    """The counts by pool and model. The counts are changed in the event loop's thread, and may be collected in any
    thread.
    """

    def __init__(self, bounds_s: Sequence[float], monotonic_s: Callable[[], float] = monotonic) -> None:
        """
        Args:
            bounds_s: the bucket bounds of the histogram of hop times. The hop time of a request is the time that
                forwarding adds to it.
        """
        self._monotonic_s = monotonic_s
        self._counts: dict[Labels, dict[str, int]] = {}
        self._counted_s: dict[Labels, float] = {}  # the time of the last change of each count, oldest first
        self._hop = Histograms(
            "octet_hop_duration_seconds",
            "Time of a forwarded request, minus the time that its worker reported.",
            _LABELS,
            bounds_s,
        )

    def count(self, forwards: Sequence[ForwardCounts]) -> None:
        """Adds the counts that a data plane reported."""
        now_s = self._monotonic_s()
        for each in forwards:
            labels = each["pool"], each["model"]
            self._counted_s.pop(labels, None)
            self._counted_s[labels] = now_s
            counts = self._counts.setdefault(labels, dict.fromkeys(_OUTCOMES, 0))
            for outcome, name in _OUTCOMES.items():
                counts[outcome] += each[name]
            if "hop" in each:
                self._hop.labels(*labels).add(each["hop"]["counts"], each["hop"]["sum"])
        for labels, counted_s in list(self._counted_s.items()):
            if now_s - counted_s < KEPT_S:
                break
            del self._counted_s[labels], self._counts[labels]
            self._hop.drop(*labels)

    def collect(self) -> Iterator[Metric]:
        family = self._family()
        for labels, counts in list(self._counts.items()):
            for outcome, count in counts.items():
                if count:
                    family.add_metric((*labels, outcome), count)
        yield family
        yield from self._hop.collect()

    def describe(self) -> Iterator[Metric]:
        yield self._family()
        yield from self._hop.describe()

    def _family(self) -> CounterMetricFamily:
        help = (
            "Requests sent to workers: all (sent), those sent again (retried), and those whose worker was lost "
            "(failed)."
        )
        return CounterMetricFamily("octet_forwards", help, labels=(*_LABELS, "outcome"))
