"""Arithmetic on a vector of int32 accumulators."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, intrinsic, load, splat
from service.compiler.kernels.vector.isa import Isa


@dataclass(frozen=True)
class Lanes:
    """A program that is being written and its instruction set, with arithmetic on vectors of `Isa.lanes` values."""

    program: Program
    isa: Isa

    def keep(self, value: Expr, dtype: str = "int32") -> Expr:
        return self.program.bind(value, f"{dtype}x{self.isa.lanes}")

    def const(self, value: int | float, dtype: str = "int32") -> Expr:
        return splat(tirx.const(value, dtype), self.isa.lanes)

    def widen(self, buffer: Buffer, offset: Expr) -> Expr:
        """Loads one block of channels of one pixel, as int32."""
        return tirx.Cast(f"int32x{self.isa.lanes}", load(buffer, offset, self.isa.lanes))

    def multiply_add(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """a * b + c in float32, rounded once."""
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.fma", a, b, c)

    def fused(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Computes `multiply_add` once, at this point, and returns a variable."""
        return self.keep(self.multiply_add(a, b, c), "float32")

    def rounded(self, product: Expr) -> Expr:
        """Returns a float32 product that is rounded before something is added to it.

        Otherwise LLVM would contract the product and the sum, and round once. Converting to float64 in between does not
        prevent that.
        """
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.arithmetic.fence", product)

    def high_mul(self, x: Expr, significand: Expr) -> Expr:
        """(x * significand + 2**30) >> 31, in 64 bits (`fixed_point.high_mul`)."""
        return self.isa.fixed_point.high_mul(self.program, x, significand)

    def divide_by_pot(self, x: Expr, exponent: Expr) -> Expr:
        """x / 2**exponent, halves away from zero; exponents of at least 1 (`fixed_point.divide_by_pot`)."""
        return self.isa.fixed_point.divide_by_pot(self.program, x, exponent)

    def round_twice(self, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1."""
        return self.isa.fixed_point.round_twice(self.program, x, significand, exponent)

    def scale_once(self, x: Expr, significand: Expr, right: Expr, *, away: bool) -> Expr:
        """(x * significand + 2**(right - 1)) >> right in 64 bits, which rounds halves up; with `away`, halves away from
        zero. `right` is 31 or more, so that the result fits."""
        return self.isa.fixed_point.scale_once(self.program, x, significand, right, away=away)
