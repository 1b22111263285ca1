"""Arithmetic on a vector of int32 accumulators."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, intrinsic, load, splat
from service.compiler.kernels.vector.isa import Isa


@dataclass(frozen=True)
class Lanes:
    """Arithmetic on vectors of `Isa.lanes` values, in the program that is being built."""

    program: Program
    isa: Isa

    def keep(self, value: Expr, dtype: str = "int32") -> Expr:
        return self.program.bind(value, f"{dtype}x{self.isa.lanes}")

    def const(self, value: int | float, dtype: str = "int32") -> Expr:
        return splat(tirx.const(value, dtype), self.isa.lanes)

    def widen(self, buffer: Buffer, offset: Expr) -> Expr:
        """Loads the bytes of one channel block of one pixel, and converts them to int32."""
        return tirx.Cast(f"int32x{self.isa.lanes}", load(buffer, offset, self.isa.lanes))

    def multiply_add(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Computes a * b + c in float32, rounded once."""
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.fma", a, b, c)

    def fused(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Computes `multiply_add` once, at this point, and returns a variable."""
        return self.keep(self.multiply_add(a, b, c), "float32")

    def rounded(self, product: Expr) -> Expr:
        """Ensures that a float32 product is rounded before a caller adds something to it (`kernels.rounding`).

        Otherwise LLVM would contract the product and the sum to one operation that rounds once, even across a
        conversion to float64.
        """
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.arithmetic.fence", product)

    def high_mul(self, x: Expr, significand: Expr) -> Expr:
        """Computes (x * significand + 2**30) >> 31, in 64 bits (`fixed_point.high_mul`)."""
        return self.isa.fixed_point.high_mul(self.program, x, significand)

    def divide_by_pot(self, x: Expr, exponent: Expr) -> Expr:
        """Computes x / 2**exponent, halves away from zero; exponents of at least 1 (`fixed_point.divide_by_pot`)."""
        return self.isa.fixed_point.divide_by_pot(self.program, x, exponent)

    def round_twice(self, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """Computes divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1."""
        return self.isa.fixed_point.round_twice(self.program, x, significand, exponent)

    def scale_once(self, x: Expr, significand: Expr, right: Expr, *, away: bool) -> Expr:
        """Computes (x * significand + 2**(right - 1)) >> right in 64 bits.

        Halves are rounded up, or away from zero if `away`. `right` is at least 31, so that the result fits int32.
        """
        return self.isa.fixed_point.scale_once(self.program, x, significand, right, away=away)
