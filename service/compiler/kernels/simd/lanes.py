"""A vector of accumulators: the arithmetic of an instruction set on int32 lanes."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, splat
from service.compiler.kernels.simd.isa import Isa


@dataclass(frozen=True)
class Lanes:
    """The program being written and its instruction set, with the arithmetic of one vector of int32."""

    program: Program
    isa: Isa

    def keep(self, value: Expr, dtype: str = "int32") -> Expr:
        return self.program.bind(value, f"{dtype}x{self.isa.lanes}")

    def const(self, value: int | float, dtype: str = "int32") -> Expr:
        return splat(tirx.const(value, dtype), self.isa.lanes)

    def widen(self, buffer: Buffer, offset: Expr) -> Expr:
        """One block of channels of one pixel, as int32."""
        return tirx.Cast(f"int32x{self.isa.lanes}", load(buffer, offset, self.isa.lanes))

    def multiply_add(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """a * b + c in float32, rounded once."""
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.fma", a, b, c)

    def fused(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """`multiply_add`, computed here, once."""
        return self.keep(self.multiply_add(a, b, c), "float32")

    def rounded(self, product: Expr) -> Expr:
        """A float32 product that is rounded before it is added to: LLVM would join the two, and round once. (It sees
        through a detour by float64.)"""
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.arithmetic.fence", product)

    def high_mul(self, x: Expr, significand: Expr) -> Expr:
        """(x * significand + 2**30) >> 31, in 64 bits (`fixed_point.high_mul`).

        Even lanes are multiplied as they are; odd ones are moved down for it, and their results stay in the upper half.
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
