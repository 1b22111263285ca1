"""Conversions of accumulators to stored values, with one class for each way of rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.ops import LARGEST, Ops, Value
from service.core.models.arrays import Array

_INT32 = 1 << 31


@dataclass(frozen=True)
class FixedPoint:
    """The function x -> floor((x * significand + half - (away if x < 0 else 0)) / 2**right) of each channel, int64."""

    significands: Array
    rights: Array
    halves: Array
    aways: Array

    @property
    def scales(self) -> Array:
        return np.asarray(self.significands * np.exp2(-self.rights.astype(np.float64)))


@dataclass(frozen=True)
class Requantization:
    """Converts accumulators to output values minus the output's zero point, not yet clamped.

    Attributes:
        centred: true if the result is the stored value minus 128, instead of minus the zero point.
    """

    centred = False

    @property
    def is_wide(self) -> bool:
        """True if the result may exceed the int32 to which vectors of lanes round."""
        return False

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that the code reads. Each has one value, or one for each channel."""
        return ()

    def started(self, bias: Array) -> Array:
        """Returns the int32 values with which accumulators are initialized: the bias, and anything else that `express`
        expects.
        """
        return bias.astype(np.int32)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        """Converts accumulators.

        Args:
            channels: the values of the arrays for the channel; then the stored residual, if the formula adds one.
        """
        raise NotImplementedError

    def fixed_point(self, facts: Facts) -> FixedPoint | None:
        """Returns the function that this requantization computes, for the search for one that is faster. Returns None
        if it is not such a function.
        """
        return None

    def repeated(self, channels: int) -> Self:
        """Returns this requantization with one value for each of `channels` channels."""
        return replace(self, **{each.name: _repeated(getattr(self, each.name), channels) for each in fields(self)})

    def extended(self, channels: int) -> Self:
        """Returns this requantization for `channels` channels, by repeating the last one.

        Extending with zeros could require a shift that no channel of the layer needs.
        """
        return replace(self, **{each.name: _extended(getattr(self, each.name), channels) for each in fields(self)})


def _repeated(value: Any, channels: int) -> Any:
    if isinstance(value, Requantization):
        return value.repeated(channels)
    return np.repeat(value, channels) if isinstance(value, np.ndarray) and len(value) == 1 else value


def _extended(value: Any, channels: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_extended(each, channels) for each in value)
    if isinstance(value, Requantization):
        return value.extended(channels)
    return np.pad(value, (0, channels - len(value)), mode="edge") if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Kept(Requantization):
    """Returns accumulators unchanged."""

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        return accumulator


@dataclass(frozen=True)
class FloatValues(Requantization):
    """Converts accumulators to float32, and multiplies by a float32 scale. The result stays float32."""

    scales: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales.astype(np.float32),)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        return ops.keep(ops.cast(accumulator, "float32") * channels[0], "float32")


@dataclass(frozen=True)
class FloatScale(Requantization):
    """Multiplies by a float32 scale, and rounds to even.

    Attributes:
        bounded: true if the product always fits int32.
    """

    scales: Array
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales.astype(np.float32),)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        return _rounded(ops, ops.cast(accumulator, "float32") * channels[0], self.bounded)


@dataclass(frozen=True)
class BiasedFloatScale(Requantization):
    """Scales and adds a bias by one float32 fused multiply-add, and rounds to even.

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

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        scale, addend = channels
        return _rounded(ops, ops.fma(ops.cast(accumulator, "float32"), scale, addend), self.bounded)


@dataclass(frozen=True)
class BiasedScale(Requantization):
    """Adds a bias, multiplies by a float32 scale, and rounds to even.

    Attributes:
        addends: the bias: float32, which is added to the accumulator as a float32, or int32.
        factors: if given, a fused multiply-add adds `addends * factors` instead of `addends`.
        bounded: true if the product always fits int32.
    """

    scales: Array
    addends: Array
    factors: Array | None
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        factors = () if self.factors is None else (self.factors.astype(np.float32),)
        return self.scales.astype(np.float32), self.addends, *factors

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        scale, addend, *factor = channels
        if self.addends.dtype == np.int32:
            real = ops.cast(ops.keep(accumulator + addend), "float32")
        elif factor:
            real = ops.keep(ops.fma(addend, factor[0], ops.cast(accumulator, "float32")), "float32")
        else:
            real = ops.keep(ops.cast(accumulator, "float32") + addend, "float32")
        return _rounded(ops, real * scale, self.bounded)


@dataclass(frozen=True)
class DequantizedScale(Requantization):
    """Computes the real value in float32, divides by the output's scale, adds the zero point, and rounds to even.

    Attributes:
        in_scales, weight_scales, biases, factors: s_x, s_w, the bias, and 1 / s.
        zero_point: the zero point of the output.
    """

    in_scales: Array
    weight_scales: Array
    biases: Array
    factors: Array
    zero_points: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        every = (self.in_scales, self.weight_scales, self.biases, self.factors, self.zero_points)
        return tuple(array.astype(np.float32) for array in every)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        in_scale, weight_scale, bias, factor, zero_point = channels
        real = ops.cast(accumulator, "float32") * in_scale * weight_scale + bias
        limits = ops.const(-LARGEST, "float32"), ops.const(LARGEST, "float32")
        near = ops.max(ops.min(ops.keep(real * factor, "float32"), limits[1]), limits[0])
        rounded = ops.round_even(ops.keep(near + zero_point, "float32"))
        return ops.keep(rounded - ops.round_even(zero_point))


@dataclass(frozen=True)
class FusedFloatSum(Requantization):
    """Scales the accumulator, adds the scaled residual by a fused multiply-add, and rounds to even.

    Attributes:
        residual_scales: the float32 scale of the residual, for each channel.
        residual_zero_point: the zero point of the residual, as stored.
        bounded: true if the sum always fits int32.
    """

    scales: Array
    residual_scales: Array
    residual_zero_point: int
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.scales.astype(np.float32), self.residual_scales.astype(np.float32)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        scale, residual_scale, residual = channels
        if self.residual_zero_point:
            residual = residual - ops.const(self.residual_zero_point)
        product = ops.keep(ops.cast(accumulator, "float32") * scale, "float32")
        total = ops.keep(ops.fma(ops.cast(residual, "float32"), residual_scale, product), "float32")
        return ops.keep(ops.round_even(ops.keep(total if self.bounded else ops.limited(total), "float32")))


@dataclass(frozen=True)
class ShiftedProduct(Requantization):
    """Scales the product, adds the zero point in float32, and rounds to even.

    Attributes:
        zero_point: the zero point of the output, as the model stores it.
        overflows: true if a product may exceed int32. Such a product becomes the smallest value.
    """

    scale: float
    zero_point: int
    overflows: bool = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        return np.array([self.scale], np.float32), np.array([self.zero_point], np.int32)

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        scale, zero_point = channels
        product = ops.keep(ops.cast(accumulator, "float32") * scale, "float32")
        moved = ops.keep(product + ops.cast(zero_point, "float32"), "float32")
        return ops.keep(ops.round_even(smallest_beyond(ops, moved) if self.overflows else moved) - zero_point)


@dataclass(frozen=True)
class DoubleRounding(Requantization):
    """Multiplies by a 31-bit significand, rounds, shifts, and rounds again.

    Attributes:
        bounded: true if accumulators are always below 2**30 in magnitude. One floor may then replace both roundings.
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

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        significand, *shifts = channels
        if self._left:
            accumulator = ops.shift_left(accumulator, shifts.pop(0))
        if not self._right:
            return ops.high_mul(ops.keep(accumulator), significand)
        (right,) = shifts
        if self.bounded and (self.shifts < 0).all():
            return ops.round_twice(accumulator, significand, right)
        scaled = ops.high_mul(ops.keep(accumulator), significand)
        if (self.shifts < 0).all():
            return ops.keep(ops.divide_by_pot(scaled, right))
        one = ops.const(1)
        divided = ops.divide_by_pot(scaled, ops.max(right, one))
        return ops.keep(ops.select(right < one, scaled, divided))

    def fixed_point(self, facts: Facts) -> FixedPoint | None:
        """The function is that of `Ops.round_twice`, so accumulators must fit int32 after a left shift."""
        left = self.shifts > 0
        if left.any() and (facts.magnitudes << np.maximum(self.shifts, 0) >= _INT32).any():
            return None
        rights, second = 31 - self.shifts.astype(np.int64), self.shifts < 0
        halves = (np.int64(1) << (rights - 1)) + np.where(second, 1 << 30, 0)
        return FixedPoint(self.significands.astype(np.int64), rights, halves, np.where(second, _INT32, 0))


@dataclass(frozen=True)
class SingleRounding(Requantization):
    """Multiplies by a 31-bit significand and shifts to the right in 64 bits. Halves are rounded away from zero."""

    significands: Array
    shifts: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.significands.astype(np.int32), (31 - self.shifts).astype(np.int32)

    @property
    def is_wide(self) -> bool:
        return bool((self.shifts > 0).any())

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        return ops.scale_once(ops.keep(accumulator), *channels)

    def fixed_point(self, facts: Facts) -> FixedPoint | None:
        """`aways` is 1 only for channels in which a scaled accumulator can be exactly a half."""
        rights, factors = 31 - self.shifts.astype(np.int64), self.significands.astype(np.int64)
        halves = np.int64(1) << (rights - 1)
        powers = factors & -factors  # the largest power of two that divides each factor
        return FixedPoint(factors, rights, halves, np.where(facts.magnitudes * powers >= halves, 1, 0))


@dataclass(frozen=True)
class Words(Requantization):
    """Requantizes, adds the zero point, and clamps. The result is int16.

    Attributes:
        zero_point, low, high: the zero point and the bounds of the result.
    """

    rounding: Requantization
    zero_point: int
    low: int
    high: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.rounding.arrays

    def express(self, ops: Ops, accumulator: Value, channels: Sequence[Value]) -> Value:
        scaled = self.rounding.express(ops, accumulator, channels)
        zero_point, low, high = (ops.const(value) for value in (self.zero_point, self.low, self.high))
        # Values are clamped first, so that adding the zero point cannot overflow.
        bounded = ops.max(ops.min(scaled, ops.const(1 << 17)), ops.const(-(1 << 17))) + zero_point
        return ops.cast(ops.max(ops.min(bounded, high), low), "int16")


def _rounded(ops: Ops, value: Value, bounded: bool) -> Value:
    return ops.keep(ops.round_even(value if bounded else ops.limited(value)))


def smallest_beyond(ops: Ops, value: Value) -> Value:
    """Replaces values beyond int32, and NaN, by a value that is smaller than all stored ones, as x86 converts them."""
    beyond, far = ops.const(float(1 << 31), "float32"), ops.const(-LARGEST, "float32")
    below = ops.select(value < ops.const(-float(1 << 31), "float32"), far, value)
    return ops.limited(ops.keep(ops.select(value < beyond, below, far), "float32"))
