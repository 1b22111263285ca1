"""The model versions that the metrics include: the loaded ones and, for a while, those that were unloaded.

Every push is a new version, and a process may see many pushes, so old versions must be dropped from the metrics.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import monotonic

from service.api.ops.histograms import Histograms

Labels = tuple[str, str, str]  # model, version, target

KEPT_S = 300.0  # unloaded versions are kept for this long; by then the last counts have been scraped
MOST_KEPT = 64  # the maximum of unloaded versions: if models take turns in memory, they are unloaded all the time


class Versions:
    """The loaded and recently unloaded versions. For the event loop's thread."""

    def __init__(self, families: Sequence[Histograms]) -> None:
        """
        Args:
            families: metrics whose first labels are `Labels`.
        """
        self._families = families
        self._loaded: set[Labels] = set()
        self._retired: dict[Labels, float] = {}  # the time of unloading, by the monotonic clock, oldest first

    def update(self, loaded: Collection[Labels]) -> None:
        """Sets the loaded versions. Other versions are included for `KEPT_S` longer, or until more than `MOST_KEPT` are
        unloaded.
        """
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
