"""The range of values that a quantized tensor can store, and counts of the values that were to be stored in it.

A *code* is the integer that represents a real value: round(real / scale) + zero_point. Codes between the bounds of the
storage type are stored; the others are clipped to the nearest bound. Counts are a vector of int64 with `LENGTH`
elements: how many codes are below and above the bounds, the smallest and the largest code, and a histogram of `BINS`
bins. Its middle third covers the bounds, and the first and the last bin contain all codes beyond the histogram.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

INSIDE = 64  # the bins between the bounds
BINS = 3 * INSIDE
BELOW, ABOVE, SMALLEST, LARGEST, HEAD = range(5)  # the elements before the histogram, and their number
LENGTH = HEAD + BINS
MOST_CODE = 1 << 40  # codes are clamped to this value and its negative
PROPOSED_CLIPPED = 1e-4  # the fraction of live values that a proposed range may clip at each end
CLIPPED_LIMIT = 0.01  # a larger fraction of clipped values means that live data leaves the calibrated range
_RELU6 = 6.0
_MOST_COUNT = 1 << 62


@dataclass(frozen=True)
class StoredRange:
    """The range of the real values that one tensor can store. Calibration chose it.

    Attributes:
        tensor: the tensor's name in the imported model.
        low, high: the smallest and the largest code that is stored.
    """

    tensor: str
    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def bin_codes(self) -> int:
        """The number of codes in each bin of the histogram."""
        return max(1, -(-(self.high - self.low + 1) // INSIDE))

    @property
    def low_real(self) -> float:
        return self.real(self.low)

    @property
    def high_real(self) -> float:
        return self.real(self.high)

    @property
    def is_low_activation(self) -> bool:
        """True if the range begins at 0. Then the smallest code is the result of a ReLU for all negative values."""
        return self.low == self.zero_point

    @property
    def is_high_activation(self) -> bool:
        """True if the range ends at 6, within half a step. Then the largest code is the result of a ReLU6."""
        return abs(self.high_real - _RELU6) <= self.scale / 2

    def real(self, code: int) -> float:
        """Returns the real value that a code represents."""
        return (code - self.zero_point) * self.scale

    def bin_edge(self, index: int) -> int:
        """Returns the smallest code of a bin; the first bin contains smaller codes too."""
        return self.low + (index - INSIDE) * self.bin_codes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> StoredRange:
        """Raises `KeyError`, `TypeError` or `ValueError` if a member is missing or malformed."""
        found = StoredRange(
            str(members["tensor"]),
            float(members["scale"]),
            int(members["zero_point"]),
            int(members["low"]),
            int(members["high"]),
        )
        if not (0 < found.scale < float("inf") and -MOST_CODE < found.low < found.high < MOST_CODE):
            raise ValueError(f"the range of {found.tensor!r} is not valid")
        return found


Counts = tuple[int, ...]


def check_counts(counts: Sequence[int]) -> Counts:
    """Returns `counts` if it is a valid vector of counts. Raises `ValueError` otherwise."""
    found = tuple(counts)
    totals = (*found[BELOW:SMALLEST], *found[HEAD:])
    if len(found) != LENGTH or not all(isinstance(each, int) and abs(each) < _MOST_COUNT for each in found):
        raise ValueError("counts are malformed")
    if min(totals) < 0 or found[BELOW] + found[ABOVE] > sum(found[HEAD:]):
        raise ValueError("counts contradict each other")
    return found


def merge_counts(first: Sequence[int], second: Sequence[int]) -> Counts:
    """Returns the counts of the values of both."""
    merged = [a + b for a, b in zip(first, second, strict=True)]
    merged[SMALLEST] = min(first[SMALLEST], second[SMALLEST])
    merged[LARGEST] = max(first[LARGEST], second[LARGEST])
    return tuple(merged)


@dataclass(frozen=True)
class LiveRange:
    """The values that requests caused in one tensor, beside the range that it can store."""

    stored: StoredRange
    counts: Counts

    @property
    def values(self) -> int:
        return sum(self.counts[HEAD:])

    @property
    def clipped(self) -> int:
        """The number of values that were clipped, except by an activation (`StoredRange.is_low_activation`)."""
        below = 0 if self.stored.is_low_activation else self.counts[BELOW]
        return below + (0 if self.stored.is_high_activation else self.counts[ABOVE])

    @property
    def clipped_ratio(self) -> float:
        return self.clipped / self.values if self.values else 0.0

    @property
    def low_real(self) -> float:
        """The smallest value; of a ReLU, the smallest value before it."""
        return self.stored.real(self.counts[SMALLEST])

    @property
    def high_real(self) -> float:
        return self.stored.real(self.counts[LARGEST])

    @property
    def is_outside(self) -> bool:
        """True if more than `CLIPPED_LIMIT` of the values were clipped."""
        return self.clipped_ratio > CLIPPED_LIMIT

    @property
    def proposed(self) -> tuple[float, float] | None:
        """The stored range, widened so that it clips at most `PROPOSED_CLIPPED` of the live values at each end. None if
        live data does not leave the range. An end that belongs to an activation stays.
        """
        if not self.is_outside:
            return None
        low, high = self.stored.low_real, self.stored.high_real
        if not self.stored.is_low_activation:
            low = min(low, self._edge(self.counts[HEAD:], lower=True))
        if not self.stored.is_high_activation:
            high = max(high, self._edge(self.counts[HEAD:], lower=False))
        return low, high

    def _edge(self, histogram: Sequence[int], *, lower: bool) -> float:
        """Returns the outer edge of the first bin, from one end, with which more values than `PROPOSED_CLIPPED` have
        been passed; the extreme value if that bin is closer to the end or is unbounded.
        """
        passed, bins = 0, range(BINS) if lower else range(BINS - 1, -1, -1)
        for index in bins:
            passed += histogram[index]
            if passed > PROPOSED_CLIPPED * self.values:
                break
        if index in (0, BINS - 1):
            return self.low_real if lower else self.high_real
        if lower:
            return max(self.low_real, self.stored.real(self.stored.bin_edge(index)))
        return min(self.high_real, self.stored.real(self.stored.bin_edge(index + 1) - 1))


@dataclass(frozen=True)
class LiveCounts:
    """The counts of one artifact over some time.

    Attributes:
        artifact: the artifact that counted.
        samples: the number of requests that were counted.
        dropped: the number of chosen requests that were not counted, because this machine was busy.
        counts: the counts of each range.
        since, until: the first and the last day, UTC.
    """

    model: str
    version: int
    artifact: str
    ranges: tuple[StoredRange, ...]
    counts: tuple[Counts, ...]
    samples: int
    dropped: int
    since: date
    until: date

    def merge(self, other: LiveCounts) -> LiveCounts:
        """Returns the counts of both. `other` is of the same artifact."""
        return replace(
            self,
            counts=tuple(merge_counts(a, b) for a, b in zip(self.counts, other.counts, strict=True)),
            samples=self.samples + other.samples,
            dropped=self.dropped + other.dropped,
            since=min(self.since, other.since),
            until=max(self.until, other.until),
        )

    def tensors(self) -> list[LiveRange]:
        """Returns the tensors in the order of the model."""
        return [LiveRange(*each) for each in zip(self.ranges, self.counts, strict=True)]
