"""What happens to accumulators before they are stored: requantize, add a residual, clamp, pack.

Each class here is one formula of `qnn/numerics`, on vectors. Numbers that differ from layer to layer are constants of
the kernel and not of the code, so that layers of one shape share one function; only what changes the instructions (is
there a left shift, can a product leave the int32 range) is in the code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.kernel import Array
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, splat
from service.compiler.kernels.x86.isa import Isa

CENTRE = 128  # of bytes
LARGEST = float(1 << 30)  # of a float that is rounded to int32


@dataclass(frozen=True)
class Lanes:
    """The program being written and its instruction set, with the arithmetic of one vector of int32."""

    program: Program
    isa: Isa

    def keep(self, value: Expr, dtype: str = "int32") -> Expr:
        return self.program.bind(value, f"{dtype}x{self.isa.lanes}")

    def const(self, value: int | float, dtype: str = "int32") -> Expr:
        return splat(tirx.const(value, dtype), self.isa.lanes)

    def fused(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """a * b + c in float32, rounded once."""
        dtype = f"float32x{self.isa.lanes}"
        return self.keep(intrinsic(dtype, "llvm.fma", a, b, c), "float32")

    def high_mul(self, x: Expr, significand: Expr) -> Expr:
        """(x * significand + 2**30) >> 31, in 64 bits (`fixed_point.high_mul`).

        `vpmuldq` multiplies even lanes; odd ones are moved down for it, and their results stay in the upper half.
        """
        nudge = self._wide(1 << 30)
        even, odd = self._products(x, significand)
        return self._interleave((even + nudge) >> self._wide(31), (odd + nudge) << self._wide(1))

    def divide_by_pot(self, x: Expr, exponent: Expr) -> Expr:
        """x / 2**exponent, halves away from zero; exponents of at least 1 (`fixed_point.divide_by_pot`)."""
        one = self.const(1)
        x = self.keep(x)
        return (((x + (x >> self.const(31))) >> (exponent - one)) + one) >> one

    def round_twice(self, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1.

        With s the sign of x (0 or -1), and e the exponent, the two roundings are one floor:
        (x * m + 2**30 + 2**(30 + e) + s * 2**31) >> (31 + e). (high_mul's result has the sign of x, or it is 0 and the
        correction makes no difference.) Doubled, the sum's upper half is all that counts, and s is added to it as it
        is.
        """
        half = f"int64x{self.isa.lanes // 2}"
        x, exponent = self.keep(x), self.keep(exponent)
        even, odd = self._products(x + x, significand)
        counts = (bits(half, exponent) & self._wide(0xFFFFFFFF), bits(half, exponent) >> self._wide(32))
        first, second = (self._wide(1 << 31) + (self._wide(1 << 31) << count) for count in counts)
        upper = self._uppers(even + first, odd + second)
        return self.keep((upper + (x >> self.const(31))) >> exponent)

    def scale_once(self, x: Expr, significand: Expr, right: Expr) -> Expr:
        """(x * significand + 2**(right - 1)) >> right in 64 bits; `right` is 31 or more, so that the result fits."""
        half = f"int64x{self.isa.lanes // 2}"
        right = self.keep(right)
        counts = (bits(half, right) & self._wide(0xFFFFFFFF), bits(half, right) >> self._wide(32))
        even, odd = (
            (product + (self._wide(1) << (count - self._wide(1)))) >> count
            for product, count in zip(self._products(x, significand), counts, strict=True)
        )
        return self._interleave(even, odd << self._wide(32))

    def _products(self, x: Expr, y: Expr) -> tuple[Expr, Expr]:
        half = f"int64x{self.isa.lanes // 2}"
        a, b = (self.program.bind(bits(half, value), half) for value in (x, y))
        down = self._wide(32)
        even = ((a << down) >> down) * ((b << down) >> down)
        return self.program.bind(even, half), self.program.bind((a >> down) * (b >> down), half)

    def _interleave(self, even: Expr, odd: Expr) -> Expr:
        lanes, dtype = self.isa.lanes, f"int32x{self.isa.lanes}"
        order = [tirx.const(lane + (lane % 2) * lanes, "int32") for lane in range(lanes)]
        return self.keep(tirx.Shuffle([bits(dtype, even), bits(dtype, odd)], order))

    def _uppers(self, even: Expr, odd: Expr) -> Expr:
        """The upper halves of both, in turn."""
        lanes, dtype = self.isa.lanes, f"int32x{self.isa.lanes}"
        order = [tirx.const(lane + lanes if lane % 2 else lane + 1, "int32") for lane in range(lanes)]
        return self.keep(tirx.Shuffle([bits(dtype, even), bits(dtype, odd)], order))

    def _wide(self, value: int) -> Expr:
        return splat(tirx.const(value, "int64"), self.isa.lanes // 2)


class Requantization(Protocol):
    """Accumulators -> values less the zero point, not yet clamped.

    Attributes:
        centred: whether values are less `CENTRE`, as they are stored, instead of the zero point.
    """

    centred: ClassVar[bool] = False

    @property
    def arrays(self) -> tuple[Array, ...]:
        """One value for each channel, filled up to whole blocks."""

    def started(self, bias: Array) -> Array:
        """What accumulators start from, int32, so that `apply` gets what it wants of those with this bias."""
        return bias.astype(np.int32)

    def apply(self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...]) -> Expr:
        """`channels`: the arrays' values for the block at hand; then the residual as stored, where there is one that no
        addition of its own takes."""


@dataclass(frozen=True)
class FloatScale(Requantization):
    """`FloatRequantize`: one float32 multiplication, rounded to even.

    Attributes:
        bounded: whether the product surely fits an int32.
    """

    scales: Array
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return (self.scales.astype(np.float32),)

    def apply(self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...]) -> Expr:
        product = tirx.Cast(f"float32x{lanes.isa.lanes}", total) * channels[0]
        if not self.bounded:
            product = tirx.min(product, lanes.const(LARGEST, "float32"))
        return lanes.keep(lanes.isa.round_even(product))


@dataclass(frozen=True)
class FusedFloatSum(Requantization):
    """`PostSum`: a scaled residual added to the scaled accumulators by one fused multiply-add, then rounded to even.

    Attributes:
        residual_scales: float32, the same in each channel.
        bounded: whether the sum surely fits an int32.
    """

    scales: Array
    residual_scales: Array
    residual_zero_point: int
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.scales.astype(np.float32), self.residual_scales.astype(np.float32)

    def apply(self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...]) -> Expr:
        scale, residual_scale, residual = channels
        floating = f"float32x{lanes.isa.lanes}"
        if self.residual_zero_point:
            residual = residual - lanes.const(self.residual_zero_point)
        product = lanes.keep(tirx.Cast(floating, total) * scale, "float32")
        added = lanes.fused(tirx.Cast(floating, residual), residual_scale, product)
        if not self.bounded:
            added = tirx.min(added, lanes.const(LARGEST, "float32"))
        return lanes.keep(lanes.isa.round_even(lanes.keep(added, "float32")))


@dataclass(frozen=True)
class DoubleRounding(Requantization):
    """`TwoRoundings`: a 31-bit significand and a shift; rounded after each.

    Attributes:
        bounded: whether every accumulator surely lies within 2**30, so that one floor does for both roundings.
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

    def apply(self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...]) -> Expr:
        significand, *shifts = channels
        if self._left:
            total = total << shifts.pop(0)
        if not self._right:
            return lanes.high_mul(lanes.keep(total), significand)
        (right,) = shifts
        if self.bounded and (self.shifts < 0).all():
            return lanes.round_twice(total, significand, right)
        scaled = lanes.high_mul(lanes.keep(total), significand)
        if (self.shifts < 0).all():
            return lanes.keep(lanes.divide_by_pot(scaled, right))
        one = lanes.const(1)
        divided = lanes.divide_by_pot(scaled, tirx.max(right, one))
        return lanes.keep(tirx.Select(right < one, scaled, divided))


@dataclass(frozen=True)
class SingleRounding(Requantization):
    """`OneRounding`: a 31-bit significand, applied in 64 bits; no shift is to the left."""

    significands: Array
    shifts: Array

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.significands.astype(np.int32), (31 - self.shifts).astype(np.int32)

    def apply(self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...]) -> Expr:
        return lanes.scale_once(lanes.keep(total), *channels)


@dataclass(frozen=True)
class FusedScale(Requantization):
    """`TwoRoundings` or `OneRounding` by one fused multiplication and addition in float32 (`fused.fused_scale`).

    Attributes:
        scales, offsets: float32.
        starts: what accumulators start from besides the bias.
        exceptions: accumulators, and those that are taken instead.
        mirrored: whether offsets have the sign of the accumulator.
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
        """For so many channels, the further ones like the last."""

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

    def apply(self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...]) -> Expr:
        scale, offset, *exceptions = channels
        accumulator = total
        for wrong, right in zip(exceptions[::2], exceptions[1::2], strict=True):
            total = lanes.keep(tirx.Select(tirx.EQ(accumulator, wrong), right, total))
        x = lanes.keep(tirx.Cast(f"float32x{lanes.isa.lanes}", total), "float32")
        if self.mirrored:
            dtype, sign = f"int32x{lanes.isa.lanes}", lanes.const(-(1 << 31))
            offset = bits(f"float32x{lanes.isa.lanes}", bits(dtype, offset) ^ (bits(dtype, x) & sign))
        return lanes.keep(lanes.isa.round_even(lanes.isa.fused(x, scale, offset)))


class Addition(Protocol):
    """A residual added to what a layer gives, with every rounding of the reference."""

    @property
    def parameters(self) -> tuple[int, ...]:
        """int32 values that the code reads."""

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        """`value` less its zero point, clamped; `residual` as stored. Returns the sum less the output's zero point."""


@dataclass(frozen=True)
class SharedShiftSum:
    """`SharedShiftAdd`: 21-bit multipliers over one shift."""

    multiplier: int
    residual_multiplier: int
    bias: int
    shift: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.multiplier, self.residual_multiplier, self.bias, self.shift

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        multiplier, residual_multiplier, bias, shift = parameters
        return lanes.keep((value * multiplier + residual * residual_multiplier + bias) >> shift)


@dataclass(frozen=True)
class ScaledAddition:
    """`ScaledSum`: the first operand times its factor, then a fused multiply-add of the second, rounded to even.

    Factors are float32; together they are small enough that no sum leaves an int32.
    """

    factor: float
    residual_factor: float
    residual_zero_point: int
    residual_is_first: bool

    @property
    def parameters(self) -> tuple[int, ...]:
        factors = np.array([self.factor, self.residual_factor], np.float32).view(np.int32)
        return (*factors.tolist(), self.residual_zero_point)

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        floating, (own, of_residual, zero_point) = f"float32x{lanes.isa.lanes}", parameters
        first, second = (value, own), (residual - zero_point, of_residual)
        if self.residual_is_first:
            first, second = second, first
        (a, a_factor), (b, b_factor) = (
            (tirx.Cast(floating, operand), bits(floating, factor)) for operand, factor in (first, second)
        )
        total = lanes.fused(b, b_factor, lanes.keep(a * a_factor, "float32"))
        return lanes.keep(lanes.isa.round_even(total))


@dataclass(frozen=True)
class FixedPointSum:
    """`FixedPointAdd`: both operands in 2**-20 of twice the larger scale; multipliers are (significand, shift).

    Operands less their zero points stay below 2**9, so shifted by 20 they and their sum are below 2**30.
    """

    multiplier: tuple[int, int]
    residual_multiplier: tuple[int, int]
    residual_zero_point: int
    out_multiplier: tuple[int, int]

    LEFT_SHIFT = 20
    _HALF = (1 << 30, 0)  # of the operand with the larger scale: exact, a shift less

    @property
    def parameters(self) -> tuple[int, ...]:
        pairs = (self.multiplier, self.residual_multiplier, self.out_multiplier)
        return (self.residual_zero_point, *(part for significand, shift in pairs for part in (significand, -shift)))

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        zero_point, *rest = parameters
        terms = [
            self._scaled(lanes, operand, multiplier, rest[2 * place], rest[2 * place + 1])
            for place, (operand, multiplier) in enumerate(
                ((value, self.multiplier), (residual - zero_point, self.residual_multiplier))
            )
        ]
        return self._round_twice(lanes, lanes.keep(terms[0] + terms[1]), self.out_multiplier, rest[4], rest[5])

    def _scaled(self, lanes: Lanes, operand: Expr, multiplier: tuple[int, int], significand: Expr, right: Expr) -> Expr:
        if multiplier == self._HALF:
            return operand << lanes.const(self.LEFT_SHIFT - 1)
        return self._round_twice(
            lanes, lanes.keep(operand << lanes.const(self.LEFT_SHIFT)), multiplier, significand, right
        )

    @staticmethod
    def _round_twice(lanes: Lanes, x: Expr, multiplier: tuple[int, int], significand: Expr, right: Expr) -> Expr:
        shift = multiplier[1]
        if shift < 0:
            return lanes.round_twice(x, significand, right)
        if shift > 0:
            x = lanes.keep(x << (lanes.const(0) - right))
        return lanes.high_mul(x, significand)


@dataclass(frozen=True)
class Bounds:
    """A type as stored: its zero point and the values it may take."""

    zero_point: int
    low: int = 0
    high: int = 255


@dataclass(frozen=True)
class Epilogue:
    """Accumulators to bytes.

    Attributes:
        out: of what is stored.
        addition: a residual that is added, if any.
        middle: of the layer's own result, before the addition.
    """

    requantization: Requantization
    out: Bounds
    addition: Addition | None = None
    middle: Bounds | None = None

    @property
    def parameters(self) -> Array:
        """The numbers that the code reads, int32."""
        numbers = [self.out.zero_point, self.out.low, self.out.high]
        if self.addition is not None and self.middle is not None:
            middle = self.middle
            numbers += [middle.low - middle.zero_point, middle.high - middle.zero_point, *self.addition.parameters]
        return np.array(numbers, np.int32)

    def channels(self, lanes: Lanes, buffers: tuple[Buffer, ...], offset: Expr) -> tuple[Expr, ...]:
        """The requantization's values for the block of channels at `offset`."""
        return tuple(
            lanes.keep(load(buffer, offset, lanes.isa.lanes), str(array.dtype))
            for buffer, array in zip(buffers, self.requantization.arrays, strict=True)
        )

    def value(
        self, lanes: Lanes, total: Expr, channels: tuple[Expr, ...], parameters: Buffer, residual: Expr | None
    ) -> Expr:
        """Accumulators of one pixel -> its values less the output's zero point, not yet clamped."""
        if residual is None:
            return self.requantization.apply(lanes, total, channels)
        if self.addition is None:
            return self.requantization.apply(lanes, total, (*channels, residual))
        value = self.requantization.apply(lanes, total, channels)
        low, high, *numbers = (
            splat(load(parameters, 3 + place, 1), lanes.isa.lanes) for place in range(2 + len(self.addition.parameters))
        )
        clamped = lanes.keep(tirx.max(tirx.min(value, high), low))
        return self.addition.apply(lanes, clamped, residual, tuple(numbers))

    def pack(self, lanes: Lanes, pixels: tuple[Expr, Expr, Expr, Expr], parameters: Buffer) -> Expr:
        """Values of four pixels -> their bytes, clamped."""
        if self.requantization.centred:
            return self._clamped(lanes.isa.pack_centred(pixels), lanes.isa.bytes, parameters)
        zero_point = tirx.Cast("int16", load(parameters, 0, 1)) if self.out.zero_point else None
        return self._clamped(lanes.isa.pack(pixels, zero_point), lanes.isa.bytes, parameters)

    def narrow(self, lanes: Lanes, value: Expr, parameters: Buffer) -> Expr:
        """Values of one pixel -> its bytes, clamped."""
        zero_point, low, high = (splat(load(parameters, place, 1), lanes.isa.lanes) for place in range(3))
        if self.requantization.centred:
            zero_point = lanes.const(CENTRE)
        # Between packing's 16-bit limits first, so that the sum cannot overflow.
        bounded = tirx.max(tirx.min(value, lanes.const((1 << 15) - 1)), lanes.const(-(1 << 15))) + zero_point
        return tirx.Cast(f"uint8x{lanes.isa.lanes}", tirx.max(tirx.min(bounded, high), low))

    def _clamped(self, packed: Expr, size: int, parameters: Buffer) -> Expr:
        if self.out.low > 0:
            packed = tirx.max(packed, splat(tirx.Cast("uint8", load(parameters, 1, 1)), size))
        if self.out.high < 255:
            packed = tirx.min(packed, splat(tirx.Cast("uint8", load(parameters, 2, 1)), size))
        return packed
