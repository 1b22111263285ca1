"""Histograms of values that the data plane observed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector


class Histogram:
    """A histogram for one combination of label values."""

    __slots__ = ("counts", "sum")

    def __init__(self, bounds: int) -> None:
        self.counts, self.sum = (
            [0] * (bounds + 1),
            0.0,
        )  # counts by bucket; the last bucket is for values beyond all bounds

    def add(self, counts: Sequence[int], sum: float) -> None:
        """Adds observations that were counted elsewhere, by bucket. Must be called in the event loop's thread."""
        self.counts = [one + other for one, other in zip(self.counts, counts, strict=True)]
        self.sum += sum


class Histograms(Collector):
    """A metric with a histogram for each combination of label values. May be collected in any thread."""

    def __init__(self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._help, self._labels = name, help, labels
        self._bounds = tuple(bounds)
        self._children: dict[tuple[str, ...], Histogram] = {}

    def labels(self, *values: str) -> Histogram:
        """Returns the histogram with these label values, creating it if needed. Only for the event loop's thread."""
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}, but got {len(values)} values")
        return self._children.setdefault(values, Histogram(len(self._bounds)))

    def drop(self, *first: str) -> None:
        """Stops exporting the histograms whose labels begin with these values. References to them stay usable."""
        for values in [values for values in self._children if values[: len(first)] == first]:
            del self._children[values]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._help, labels=self._labels)
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for values, histogram in list(self._children.items()):
            counts = [float(count) for count in accumulate(list(histogram.counts))]
            family.add_metric(values, list(zip(bounds, counts, strict=True)), histogram.sum)
        yield family

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds of the buckets; another bucket is for values beyond all of them."""
        return self._bounds

    def each(self) -> Iterator[tuple[tuple[str, ...], Sequence[int]]]:
        """Yields the number of observations in each bucket of each histogram, with its label values."""
        for values, histogram in list(self._children.items()):
            yield values, list(histogram.counts)

    def counts(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """Yields the number of observations of each histogram, with its label values."""
        for values, counts in self.each():
            yield values, sum(counts)

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(self._name, self._help, labels=self._labels)


class CountOf(Collector):
    """A counter of the same events as a histogram, with the same labels. This counter reads the histogram, so that
    events are counted only once.
    """

    def __init__(self, name: str, help: str, labels: Sequence[str], of: Histograms) -> None:
        self._name, self._help, self._labels, self._of = name, help, labels, of

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for values, count in self._of.counts():
            family.add_metric(values, count)
        yield family

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._help, labels=self._labels)
