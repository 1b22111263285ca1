"""The model versions that the metrics report: those that are loaded, and for a while those that were.

Every push is another version, and a process lives for many of them: what is kept of each has to go some day.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import monotonic

from service.api.ops.histograms import Histograms

Labels = tuple[str, str, str]  # model, version, target

KEPT_S = 300.0  # after the unloading: scrapers have seen the last counts by then
MOST_KEPT = 64  # of those that are not loaded; a host whose models take turns unloads them all the time


class Versions:
    """For the event loop's thread."""

    def __init__(self, families: Sequence[Histograms]) -> None:
        """
        Args:
            families: whose first labels are `Labels`.
        """
        self._families = families
        self._loaded: set[Labels] = set()
        self._retired: dict[Labels, float] = {}  # since when, by the monotonic clock; the first comes first

    def told(self, loaded: Collection[Labels]) -> None:
        """These are loaded now; what is loaded no more is reported for a while longer, or until too many others are."""
        now_s = monotonic()
        for labels in self._loaded.difference(loaded):
            self._retired[labels] = now_s
        for labels in loaded:
            self._retired.pop(labels, None)
        self._loaded = set(loaded)
        for labels, since_s in list(self._retired.items()):
            if now_s - since_s < KEPT_S and len(self._retired) <= MOST_KEPT:
                return
            del self._retired[labels]
            for family in self._families:
                family.drop(*labels)
