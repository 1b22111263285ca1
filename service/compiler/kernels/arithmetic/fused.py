"""Replaces TFLite's fixed-point requantization by one fused multiply-add in float32, if both are proven to be equal.

The reference maps the accumulators x of a channel to at most 256 results, and is monotonic: it is a step function with
at most 255 boundaries. rint(fma(float(x), scale, offset)) is such a step function too. Two step functions that agree on
both sides of each boundary agree everywhere, so the float32 function only has to be exact next to the boundaries. This
is often possible: a boundary is between two integers, and for most channels there are a scale and an offset, near the
exact ones, for which all boundaries are the same.

For a given scale, each side of each boundary gives a bound of the offset. Let f = float(x) * scale + offset before it
is rounded to float32. The result is at least k if f > t. The threshold t is half way between k - 1/2 and an adjacent
float32: the one below if k is even (because k - 1/2 is then rounded to k), else the one above. The comparison is
computed in float64, in which t and float(x) * scale are exact. The difference of the two is rounded, but rounding is
monotonic, so a strict inequality of rounded values also holds for the exact values.

Three techniques help to find a scale:

- If results are stored directly, they are computed relative to 128, the middle of a byte's range, instead of the zero
  point. This halves the largest f and thus its error (`centred`).
- The reference may round halves away from zero. If results below the zero point are possible, the offset then gets the
  sign of x (`mirrored`).
- If a scale fails for one or two accumulators next to boundaries, these are *exceptions*: before the multiply-add, the
  kernel replaces such an accumulator by a neighbor (its *substitute*) that has the same result in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.arithmetic.epilogue import CENTRE, Bounds
from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.requantization import FixedPoint, Requantization
from service.core.models.arrays import Array

MOST_EXCEPTIONS = 2  # with three exceptions, fixed-point arithmetic is as fast
_ULPS = (0, -1, 1, -2, 2)
_MOST_RIGHT = 52  # with a larger shift, sums may exceed 64 bits
_LARGEST_SCALE_WITH_EXCEPTIONS = 1 / 8  # a larger scale may leave fewer than six accumulators for a result
_INT32 = 1 << 31
_LARGEST = float(1 << 30)  # the limit of a float that is rounded to int32


@dataclass(frozen=True)
class FusedScale(Requantization):
    """A `FixedPoint` function, computed as one float32 fused multiply-add (`fused_scale`).

    Attributes:
        scales, offsets: the float32 factor and addend of each channel.
        starts: the numbers that are added to the initial accumulators, in addition to the bias.
        exceptions: pairs of arrays (accumulators, substitutes). An accumulator that equals the first is replaced by the
            second.
        mirrored: true if the offset gets the sign of the accumulator.
    """

    scales: Array
    offsets: Array
    starts: Array
    exceptions: tuple[tuple[Array, Array], ...]
    mirrored: bool
    centred: bool = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales, self.offsets, *(array for pair in self.exceptions for array in pair))

    def started(self, bias: Array) -> Array:
        return (bias.astype(np.int64) + self.starts).astype(np.int32)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        scale, offset, *exceptions = channels
        replaced = accumulator
        for wrong, right in zip(exceptions[::2], exceptions[1::2], strict=True):
            replaced = ops.keep(ops.select(ops.equal(accumulator, wrong), right, replaced))
        x = ops.keep(ops.cast(replaced, "float32"), "float32")
        if self.mirrored:
            sign = ops.const(-(1 << 31))
            offset = ops.bits(ops.bits(offset, "int32") ^ (ops.bits(x, "int32") & sign), "float32")
        return ops.keep(ops.round_even(ops.fma(x, scale, offset)))


def fused_scale(fixed: FixedPoint, smallest: Array, largest: Array, out: Bounds, *, stored: bool) -> FusedScale | None:
    """Finds scales and offsets that give the same clamped results as `fixed`. Returns None if no such scale and offset
    exist for a channel.

    Args:
        smallest, largest: the bounds of each channel's accumulators.
        out: the bounds of the results.
        stored: true if the results are stored directly, without the addition of a residual.
    """
    fixed = _where_zero(fixed, np.maximum(np.abs(smallest), np.abs(largest)))
    if (fixed.rights > _MOST_RIGHT).any() or (fixed.rights < 1).any():
        return None
    results = np.arange(out.low, out.high) + 1 - out.zero_point
    boundaries = _boundaries(fixed, results)
    mirrored = bool(((boundaries <= 0) & (boundaries > smallest[:, None]) & (fixed.aways > 0)[:, None]).any())
    found = None
    if stored and not mirrored:
        origin = CENTRE - out.zero_point
        start = _start(fixed, origin)
        if np.abs([smallest + start, largest + start]).max() < _INT32:
            sides = _Sides.of(boundaries + start[:, None], smallest + start, largest + start, results - origin, False)
            found = _found(sides, fixed.scales, start, centred=True)
    if found is None:
        sides = _Sides.of(boundaries, smallest, largest, results, mirrored)
        found = _found(sides, fixed.scales, np.zeros_like(smallest), centred=False)
    if found is None:
        return None
    furthest = np.maximum(np.abs(smallest + found.starts), np.abs(largest + found.starts))
    in_range = furthest * found.scales.astype(np.float64) + np.abs(found.offsets) < _LARGEST
    return found if in_range.all() else None


def _where_zero(fixed: FixedPoint, largest: Array) -> FixedPoint:
    """Returns the same functions, with smaller significands and shifts for channels whose results are all zero.

    Args:
        largest: the largest magnitude of each channel's accumulators.
    """
    zero = fixed.scales * largest < 1 / 4
    replaced = {"significands": 1, "rights": _MOST_RIGHT, "halves": 1 << (_MOST_RIGHT - 1), "aways": 0}
    return FixedPoint(**{name: np.where(zero, value, getattr(fixed, name)) for name, value in replaced.items()})


def _boundaries(fixed: FixedPoint, results: Array) -> Array:
    """Returns the smallest accumulator whose result is at least each of `results`: `[channels, results]`."""
    negative = results <= 0
    short = (results << fixed.rights[:, None]) - fixed.halves[:, None]
    short[:, negative] += fixed.aways[:, None]
    least = -(-short // fixed.significands[:, None])
    least[:, negative] = np.minimum(least[:, negative], 0)
    return np.asarray(least)


def _start(fixed: FixedPoint, origin: int) -> Array:
    """Returns the int64 number that must be added to each channel's accumulators to subtract `origin` from the results.

    The number is 0 for channels whose results are all zero.
    """
    start = np.zeros_like(fixed.significands)
    moderate = fixed.rights < _MOST_RIGHT
    start[moderate] = -np.rint(origin / fixed.scales[moderate]).astype(np.int64)
    return start


def _found(sides: _Sides, exact: Array, starts: Array, *, centred: bool) -> FusedScale | None:
    found = _search(sides, exact)
    if found is None:
        return None
    exceptions = _exceptions(sides, *found)
    return None if exceptions is None else FusedScale(*found, starts, exceptions, sides.mirrored, centred)


@dataclass(frozen=True)
class _Sides:
    """The two sides of each boundary, `[channels, results]`: the last accumulator below it and the first above it.

    Attributes:
        below, above: the accumulators for which f must be less, or greater, than the threshold. These accumulators are
            float32 values in a float64 array. A side that no accumulator of the channel reaches is infinite.
        thresholds: `[results]`, the threshold t of each result.
        mirrored: true if the offset has the sign of the accumulator.
    """

    below: Array
    above: Array
    thresholds: Array
    mirrored: bool

    @classmethod
    def of(cls, boundaries: Array, smallest: Array, largest: Array, results: Array, mirrored: bool) -> _Sides:
        smallest, largest = smallest[:, None], largest[:, None]
        below, above = np.minimum(boundaries - 1, largest), np.maximum(boundaries, smallest)
        return cls(
            np.where(boundaries > smallest, _as_float(below), -np.inf),
            np.where(boundaries <= largest, _as_float(above), np.inf),
            _thresholds(results),
            mirrored,
        )

    def rows(self, channels: Array) -> _Sides:
        return _Sides(self.below[channels], self.above[channels], self.thresholds, self.mirrored)

    def margins(self, scales: Array) -> tuple[Array, Array]:
        """Returns the upper bounds (from `below`) and lower bounds (from `above`) of the signed offset."""
        factors = scales.astype(np.float64)[:, None]
        return self.thresholds - factors * self.below, self.thresholds - factors * self.above

    def limits(self, scales: Array) -> tuple[Array, Array]:
        """Returns the lower and upper bounds of the offset, before it gets the sign of the accumulator."""
        below, above = self.margins(scales)
        if not self.mirrored:
            return above, below
        under, over = self.below < 0, self.above < 0
        least, most = np.where(over, -np.inf, above), np.where(under, np.inf, below)
        np.maximum(least, -below, out=least, where=under)
        np.minimum(most, -above, out=most, where=over)
        return least, most


def _as_float(accumulators: Array) -> Array:
    return accumulators.astype(np.float32).astype(np.float64)


def _thresholds(results: Array) -> Array:
    """Returns the threshold t of each result (see the module's docstring)."""
    halves = (results - 0.5).astype(np.float32)
    towards = np.where(results % 2 == 0, -np.inf, np.inf).astype(np.float32)
    return (halves.astype(np.float64) + np.nextafter(halves, towards)) / 2


def _search(sides: _Sides, exact: Array) -> tuple[Array, Array] | None:
    """Returns float32 scales and offsets with as few exceptions as possible; None if a channel has too many."""
    scales, offsets = exact.astype(np.float32), np.zeros(len(exact), np.float32)
    remaining = np.arange(len(exact))
    for exceptions in range(MOST_EXCEPTIONS + 1):
        for ulps in _ULPS:
            candidates = exact[remaining].astype(np.float32)
            candidates += np.float32(ulps) * np.spacing(candidates)
            offset, holds = _offsets(*sides.rows(remaining).limits(candidates), exceptions, sides.mirrored)
            scales[remaining[holds]], offsets[remaining[holds]] = candidates[holds], offset[holds]
            remaining = remaining[~holds]
            if not len(remaining):
                return scales, offsets
    return None


def _offsets(least: Array, most: Array, exceptions: int, mirrored: bool) -> tuple[Array, Array]:
    """Returns, for each channel, a float32 offset that satisfies all limits except `exceptions` of them.

    Also returns an array that is true for each channel with such an offset.
    """
    if exceptions:
        kept = min(exceptions, least.shape[1] - 1)
        least = -np.sort(np.partition(-least, kept, axis=1)[:, : kept + 1], axis=1)
        most = np.sort(np.partition(most, kept, axis=1)[:, : kept + 1], axis=1)
    else:
        kept, least, most = 0, least.max(axis=1, keepdims=True), most.min(axis=1, keepdims=True)
    offsets, found = np.zeros(len(least), np.float32), np.zeros(len(least), bool)
    for ignored in range(kept + 1):
        low, high = least[:, ignored], most[:, kept - ignored]
        if mirrored:
            low = np.maximum(low, 0.0)
        low_end, high_end = np.where(np.isinf(low), high - 1, low), np.where(np.isinf(high), low + 1, high)
        middle = ((low_end + high_end) / 2).astype(np.float32)
        holds = (low < middle) & (middle < high) & ~found
        offsets[holds] = middle[holds]
        found |= holds
    return offsets, found


def _exceptions(sides: _Sides, scales: Array, offsets: Array) -> tuple[tuple[Array, Array], ...] | None:
    """Returns pairs of arrays (accumulators, substitutes), with one element for each channel.

    There are as many pairs as the channel with the most exceptions needs. The function also completes the proof: it
    checks that f is on the correct side of the threshold at both sides of every boundary of every channel, or that the
    accumulator is an exception for whose substitute this is true. It returns None if this does not hold.
    """
    below, above = sides.margins(scales)
    of_below, of_above = (_signed(offsets, side, sides.mirrored) for side in (sides.below, sides.above))
    wrong = [~(of_below < below), ~(of_above > above)]
    counts = wrong[0].sum(axis=1) + wrong[1].sum(axis=1)
    most = int(counts.max())
    if most > MOST_EXCEPTIONS or (counts[scales >= _LARGEST_SCALE_WITH_EXCEPTIONS] > 0).any():
        return None
    # A channel with fewer exceptions repeats its first exception. A channel without any replaces 0 by 0.
    taken = np.zeros((2, most, len(scales)), np.int64)
    positions = np.zeros(len(scales), np.int64)
    for mistaken, accumulators, step in zip(wrong, (sides.below, sides.above), (-1, 1), strict=True):
        for channel, result in np.argwhere(mistaken):
            accumulator = accumulators[channel, result]
            if not abs(accumulator) < 1 << 24 or not _right(
                sides, channel, result, accumulator + step, scales, offsets
            ):
                return None
            taken[:, positions[channel], channel] = accumulator, accumulator + step
            positions[channel] += 1
    taken = np.where(np.arange(most)[:, None] < positions, taken, taken[:, :1])
    return tuple((taken[0, index].astype(np.int32), taken[1, index].astype(np.int32)) for index in range(most))


def _right(sides: _Sides, channel: int, result: int, substitute: float, scales: Array, offsets: Array) -> bool:
    """Returns true if f of `substitute` is between the threshold of a boundary and the next threshold on the same
    side.
    """
    scale, offset = float(scales[channel]), float(offsets[channel])
    value = _signed(np.array([offset]), np.array([[substitute]]), sides.mirrored)[0, 0]
    margins = sides.thresholds - scale * substitute
    if substitute >= sides.above[channel, result]:
        return bool(value > margins[result] and (result + 1 == len(margins) or value < margins[result + 1]))
    return bool(value < margins[result] and (result == 0 or value > margins[result - 1]))


def _signed(offsets: Array, accumulators: Array, mirrored: bool) -> Array:
    columns = offsets.astype(np.float64)[:, None]
    return np.where(accumulators < 0, -columns, columns) if mirrored else np.broadcast_to(columns, accumulators.shape)
