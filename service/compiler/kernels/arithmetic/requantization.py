"""Requantization of accumulators to stored values, with one class for each way of rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, bits, load
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array

CENTRE = 128  # the middle of an unsigned byte's range
LARGEST = float(1 << 30)  # the limit of a float that is rounded to int32


class Requantization(Protocol):
    """Converts accumulators to output values minus the output's zero point, not yet clamped.

    Attributes:
        centred: true if the result is the stored value minus `CENTRE`, instead of minus the zero point.
    """

    centred: ClassVar[bool] = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that the generated code reads. Each has one value per channel, and is extended to whole blocks."""

    def started(self, bias: Array) -> Array:
        """Returns the int32 values with which accumulators are initialized: the bias, and anything else that `apply`
        expects."""
        return bias.astype(np.int32)

    def channels(self, lanes: Lanes, buffers: Sequence[Buffer], offset: Expr) -> tuple[Expr, ...]:
        """Loads the values of the arrays for the block of channels at `offset`."""
        return tuple(
            lanes.keep(load(buffer, offset, lanes.isa.lanes), str(array.dtype))
            for buffer, array in zip(buffers, self.arrays, strict=True)
        )

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        """Converts a vector of accumulators.

        Args:
            channels: the values of the arrays for this block; then the stored residual, if the formula adds one.
        """


@dataclass(frozen=True)
class FloatScale(Requantization):
    """`FloatRequantize`: multiplies by a float32 scale, and rounds to even.

    Attributes:
        bounded: true if the product always fits int32.
    """

    scales: Array
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales.astype(np.float32),)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        product = tirx.Cast(f"float32x{lanes.isa.lanes}", accumulator) * channels[0]
        if not self.bounded:
            product = tirx.min(product, lanes.const(LARGEST, "float32"))
        return lanes.keep(lanes.isa.round_even(product))


@dataclass(frozen=True)
class BiasedFloatScale(Requantization):
    """`BiasedFloatRequantize`: scales and adds a bias by one float32 fused multiply-add, and rounds to even.

    Attributes:
        addends: the bias, in units of the result's scale.
        bounded: true if the sum always fits int32.
    """

    scales: Array
    addends: Array
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.scales.astype(np.float32), self.addends.astype(np.float32)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        total = lanes.multiply_add(tirx.Cast(f"float32x{lanes.isa.lanes}", accumulator), *channels)
        if not self.bounded:
            total = tirx.min(total, lanes.const(LARGEST, "float32"))
        return lanes.keep(lanes.isa.round_even(total))


class Kept(Requantization):
    """Returns accumulators unchanged."""

    arrays: tuple[Array, ...] = ()

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        return accumulator


@dataclass(frozen=True)
class FloatValues(Requantization):
    """`Dequantize`: converts accumulators to float32, and multiplies by a float32 scale. The result stays float32."""

    scales: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales.astype(np.float32),)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        return lanes.keep(tirx.Cast(f"float32x{lanes.isa.lanes}", accumulator) * channels[0], "float32")


@dataclass(frozen=True)
class FusedFloatSum(Requantization):
    """`PostSum`: scales the accumulator, adds the scaled residual by a fused multiply-add, and rounds to even.

    Attributes:
        residual_scales: the float32 scale of the residual, repeated for each channel.
        bounded: true if the sum always fits int32.
    """

    scales: Array
    residual_scales: Array
    residual_zero_point: int
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.scales.astype(np.float32), self.residual_scales.astype(np.float32)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        scale, residual_scale, residual = channels
        floating = f"float32x{lanes.isa.lanes}"
        if self.residual_zero_point:
            residual = residual - lanes.const(self.residual_zero_point)
        product = lanes.keep(tirx.Cast(floating, accumulator) * scale, "float32")
        added = lanes.fused(tirx.Cast(floating, residual), residual_scale, product)
        if not self.bounded:
            added = tirx.min(added, lanes.const(LARGEST, "float32"))
        return lanes.keep(lanes.isa.round_even(lanes.keep(added, "float32")))


@dataclass(frozen=True)
class DoubleRounding(Requantization):
    """`TwoRoundings`: multiplies by a 31-bit significand, rounds, shifts, and rounds again.

    Attributes:
        bounded: true if accumulators are always below 2**30 in magnitude. One floor then replaces both roundings.
    """

    significands: Array
    shifts: Array
    bounded: bool = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        left, right = np.maximum(self.shifts, 0), np.maximum(-self.shifts, 0)
        optional = [array.astype(np.int32) for array, used in ((left, self._left), (right, self._right)) if used]
        return (self.significands.astype(np.int32), *optional)

    @property
    def _left(self) -> bool:
        return bool((self.shifts > 0).any())

    @property
    def _right(self) -> bool:
        return bool((self.shifts < 0).any())

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        significand, *shifts = channels
        if self._left:
            accumulator = accumulator << shifts.pop(0)
        if not self._right:
            return lanes.high_mul(lanes.keep(accumulator), significand)
        (right,) = shifts
        if self.bounded and (self.shifts < 0).all():
            return lanes.round_twice(accumulator, significand, right)
        scaled = lanes.high_mul(lanes.keep(accumulator), significand)
        if (self.shifts < 0).all():
            return lanes.keep(lanes.divide_by_pot(scaled, right))
        one = lanes.const(1)
        divided = lanes.divide_by_pot(scaled, tirx.max(right, one))
        return lanes.keep(tirx.Select(right < one, scaled, divided))


@dataclass(frozen=True)
class Words(Requantization):
    """`Rescale` to 16 bits: requantizes with two roundings, adds the zero point, and clamps. The result is int16.

    Attributes:
        zero_point, low, high: the zero point and the bounds of the result.
    """

    rounding: DoubleRounding
    zero_point: int
    low: int
    high: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.rounding.arrays

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        scaled = self.rounding.apply(lanes, accumulator, channels)
        zero_point, low, high = (lanes.const(value) for value in (self.zero_point, self.low, self.high))
        # Values are clamped first, so that adding the zero point cannot overflow.
        bounded = tirx.max(tirx.min(scaled, lanes.const(1 << 17)), lanes.const(-(1 << 17))) + zero_point
        return tirx.Cast(f"int16x{lanes.isa.lanes}", tirx.max(tirx.min(bounded, high), low))


@dataclass(frozen=True)
class SingleRounding(Requantization):
    """`OneRounding`: multiplies by a 31-bit significand and shifts to the right in 64 bits, rounding once."""

    significands: Array
    shifts: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.significands.astype(np.int32), (31 - self.shifts).astype(np.int32)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        return lanes.scale_once(lanes.keep(accumulator), *channels, away=True)


@dataclass(frozen=True)
class FusedScale(Requantization):
    """`TwoRoundings` or `OneRounding`, computed as one float32 fused multiply-add (`fused.fused_scale`).

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
    centred: bool  # type: ignore[misc]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales, self.offsets, *(array for pair in self.exceptions for array in pair))

    def filled(self, channels: int) -> FusedScale:
        """Extends this requantization to `channels` channels, by repeating the last one."""

        def fill(values: Array) -> Array:
            return np.pad(values, (0, channels - len(values)), mode="edge")

        exceptions = tuple((fill(wrong), fill(right)) for wrong, right in self.exceptions)
        return replace(
            self,
            scales=fill(self.scales),
            offsets=fill(self.offsets),
            starts=fill(self.starts),
            exceptions=exceptions,
        )

    def started(self, bias: Array) -> Array:
        return (bias.astype(np.int64) + self.starts).astype(np.int32)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        scale, offset, *exceptions = channels
        replaced = accumulator
        for wrong, right in zip(exceptions[::2], exceptions[1::2], strict=True):
            replaced = lanes.keep(tirx.Select(tirx.EQ(accumulator, wrong), right, replaced))
        x = lanes.keep(tirx.Cast(f"float32x{lanes.isa.lanes}", replaced), "float32")
        if self.mirrored:
            dtype, sign = f"int32x{lanes.isa.lanes}", lanes.const(-(1 << 31))
            offset = bits(f"float32x{lanes.isa.lanes}", bits(dtype, offset) ^ (bits(dtype, x) & sign))
        return lanes.keep(lanes.isa.round_even(lanes.multiply_add(x, scale, offset)))
