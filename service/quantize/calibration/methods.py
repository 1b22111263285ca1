"""Calibration methods. Each chooses a tensor's type from the statistics of its values.

A method is a function `choose(statistics, storage) -> QuantizedType`; users can pass their own. The methods here choose
different ranges. All ranges include zero, because padding and ReLU need an exact zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array

BINS = 2048
MOMENTUM = 0.1  # weight of each new input in the moving average
PERCENTILE = 99.99
_STEPS = 64  # number of ranges that are tried for each end
# the largest fraction of values that KL may clip; without a limit, it would treat the gaps of a sparse histogram as
# information
_MOST_CLIPPED = 1e-3
_LEAST_SHARE = (
    1 / 8
)  # the smallest range that is tried, as a fraction of the observed one; each histogram bin then has its own level


@dataclass(frozen=True)
class Statistics:
    """The observed values of one tensor.

    Attributes:
        name: the tensor's name.
        lows, highs: the smallest and the largest value for each input, in the order of the inputs.
        counts: a histogram of all values, with `BINS` bins between the smallest and the largest value. Empty if the
            method uses no histogram.
    """

    name: str
    lows: Array
    highs: Array
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def low(self) -> float:
        return float(self.lows.min())

    @property
    def high(self) -> float:
        return float(self.highs.max())

    @property
    def centers(self) -> Array:
        """The value that represents each bin."""
        edges = np.linspace(self.low, self.high, BINS + 1)
        return np.asarray((edges[1:] + edges[:-1]) / 2)


Choose = Callable[[Statistics, str], QuantizedType]


def affine(low: float, high: float, storage: str) -> QuantizedType:
    """Returns the type that represents `low` to `high`, and zero. If all values are zero, the scale is 1."""
    least, most = STORAGE_RANGES[storage]
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / (most - least)))
    if scale == 0 or not math.isfinite(scale):
        scale = 1.0
    return QuantizedType(storage, (scale,), (int(np.clip(round(least - low / scale), least, most)),))


def minmax(statistics: Statistics, storage: str) -> QuantizedType:
    """Covers all observed values."""
    return affine(statistics.low, statistics.high, storage)


def moving_average(statistics: Statistics, storage: str) -> QuantizedType:
    """Averages the extremes of the inputs. Later inputs have more weight, and a single outlier has little."""
    low, high = float(statistics.lows[0]), float(statistics.highs[0])
    for least, most in zip(statistics.lows[1:], statistics.highs[1:], strict=True):
        low, high = low + MOMENTUM * (float(least) - low), high + MOMENTUM * (float(most) - high)
    return affine(low, high, storage)


def percentile(statistics: Statistics, storage: str) -> QuantizedType:
    """Covers all values except one ten-thousandth. Equal numbers are cut off at both ends."""
    total = statistics.counts.cumsum()
    cut = (1 - PERCENTILE / 100) / 2 * total[-1]
    edges = np.linspace(statistics.low, statistics.high, BINS + 1)
    first = int(np.searchsorted(total, cut, side="right"))
    last = int(np.searchsorted(total, total[-1] - cut, side="left"))
    return affine(float(edges[first]), float(edges[last + 1]), storage)


def mean_square_error(statistics: Statistics, storage: str) -> QuantizedType:
    """Chooses the range for which the errors of rounding and clipping are smallest, in the mean square."""

    def noise(kind: QuantizedType) -> float:
        centers = statistics.centers
        return float((statistics.counts * (real(stored(centers, kind), kind) - centers) ** 2).sum())

    return _least(statistics, storage, noise)


def kl_divergence(statistics: Statistics, storage: str) -> QuantizedType:
    """Chooses the range for which the distribution of the stored values is most similar to that of the real ones
    (Migacz, 8-bit inference with TensorRT, GTC 2017). Clipped values count at the ends of the real distribution, but
    not of the stored one.
    """

    def divergence(kind: QuantizedType) -> float:
        least, most = STORAGE_RANGES[storage]
        levels = np.rint(statistics.centers / kind.scales[0]).astype(np.int64) + kind.zero_points[0]
        inside = np.flatnonzero((levels >= least) & (levels <= most))
        total = statistics.counts.sum()
        if total - statistics.counts[inside].sum() > _MOST_CLIPPED * total:
            return math.inf
        own = statistics.counts[inside].astype(np.float64)
        clipped = own.copy()
        clipped[0] += statistics.counts[: inside[0]].sum()
        clipped[-1] += statistics.counts[inside[-1] + 1 :].sum()
        level, there = levels[inside] - least, own > 0
        mass = np.bincount(level, own, most - least + 1)
        bins = np.bincount(level, there, most - least + 1)
        spread = np.where(there, mass[level] / np.maximum(bins[level], 1), 0)
        p, q = clipped / clipped.sum(), spread / max(spread.sum(), 1)
        both = (p > 0) & (q > 0)
        lost = p[(p > 0) & (q == 0)].sum()
        return float((p[both] * np.log(p[both] / q[both])).sum() + lost * 10)

    return _least(statistics, storage, divergence)


def power_of_two(statistics: Statistics, storage: str) -> QuantizedType:
    """Chooses the smallest power of two as the scale that covers all observed values (Intel, arXiv:1802.00930). The
    range is symmetric, or starts at zero if no value is negative.
    """
    least, most = STORAGE_RANGES[storage]
    low, high = statistics.low, statistics.high
    zero_point = least if low >= 0 else (least + most + 1) // 2
    reach = max(high / (most - zero_point), -low / max(1, zero_point - least))
    scale = 2.0 ** math.ceil(math.log2(reach)) if reach > 2.0**-100 else 1.0
    return QuantizedType(storage, (scale,), (zero_point,))


METHODS: Mapping[str, Choose] = {
    "minmax": minmax,
    "percentile": percentile,
    "kl": kl_divergence,
    "mse": mean_square_error,
    "power-of-two": power_of_two,
    "moving-average": moving_average,
}
# Methods that need no histogram, and therefore no second pass over the inputs.
OF_EXTREMES: tuple[Choose, ...] = (minmax, moving_average, power_of_two)


def stored(values: Array, kind: QuantizedType) -> Array:
    """Returns `values` as they are stored in the type `kind`, as int64."""
    least, most = STORAGE_RANGES[kind.storage]
    return np.asarray(np.clip(np.rint(values / kind.scales[0]) + kind.zero_points[0], least, most), np.int64)


def real(values: Array, kind: QuantizedType) -> Array:
    """Returns the real values of stored values."""
    return np.asarray((values - kind.zero_points[0]) * kind.scales[0])


def _least(statistics: Statistics, storage: str, cost: Callable[[QuantizedType], float]) -> QuantizedType:
    """Returns the range with the smallest cost. Searches the range's upper end, then its lower end, then both again."""
    shares = np.linspace(_LEAST_SHARE, 1, _STEPS)[::-1]
    high = low = 1.0

    def kind(below: float, above: float) -> QuantizedType:
        return affine(min(statistics.low, 0) * below, max(statistics.high, 0) * above, storage)

    for _ in range(2):
        if statistics.high > 0:
            high = float(min(shares, key=lambda share: cost(kind(low, share))))
        if statistics.low < 0:
            low = float(min(shares, key=lambda share: cost(kind(share, high))))
    return kind(low, high)
