"""The model versions that the metrics report: those that are loaded, and for a while those that were.

Every push is another version, and a process lives for many of them: what is kept of each has to go some day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import monotonic

from service.api.ops.histograms import Histograms
from service.api.ops.statistics import Statistics

Labels = tuple[str, str, str]  # model, version, target

KEPT_S = 300.0  # after the unloading: scrapers have seen the last counts by then
MOST_KEPT = 64  # of those that are not loaded; a host whose models take turns unloads them all the time


class Version:
    """One of them, on one target.

    Attributes:
        artifacts: how often each is loaded as it, by digest and numerics; while the old drains, the new is there.
    """

    def __init__(self) -> None:
        self.artifacts: Counter[tuple[str, str]] = Counter()


class Versions:
    """For the event loop's thread."""

    def __init__(self, families: Sequence[Histograms], statistics: Statistics) -> None:
        """
        Args:
            families: whose first labels are `Labels`.
        """
        self._families, self._statistics = families, statistics
        self._versions: dict[Labels, Version] = {}
        self._retired: dict[Labels, float] = {}  # when, by the monotonic clock; the first comes first

    def find(self, labels: Labels) -> Version | None:
        """None for a version that is no longer reported: new counts of it would stay for good."""
        return self._versions.get(labels)

    def loaded(self, labels: Labels, artifact: tuple[str, str]) -> Version:
        """The version is reported for a while longer, or until too many others were unloaded."""
        self.prune()
        self._retired.pop(labels, None)
        version = self._versions.setdefault(labels, Version())
        version.artifacts[artifact] += 1
        return version

    def unloaded(self, labels: Labels, artifact: tuple[str, str]) -> None:
        version = self._versions[labels]
        version.artifacts -= Counter([artifact])  # which keeps no zeros
        if not version.artifacts.total():
            self._retired[labels] = monotonic()
        self.prune()

    def prune(self) -> None:
        """Drops what was unloaded long ago."""
        now_s = monotonic()
        for labels, since_s in list(self._retired.items()):
            if now_s - since_s < KEPT_S and len(self._retired) <= MOST_KEPT:
                return
            self._drop(labels)

    def _drop(self, labels: Labels) -> None:
        del self._retired[labels], self._versions[labels]
        for family in self._families:
            family.drop(*labels)
        model, number, _ = labels
        if not any(other[:2] == (model, number) for other in self._versions):
            self._statistics.drop(model, int(number))
