"""The scalar operations of expressions, on vectors."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, splat
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.ops import LARGEST


@dataclass(frozen=True)
class Lanes:
    """Implements `qnn.expressions.ops.Ops` on vectors of `Isa.lanes` values, in the program that is being built."""

    program: Program
    isa: Isa

    def keep(self, value: Expr, dtype: str = "int32") -> Expr:
        return self.program.bind(value, f"{dtype}x{self.isa.lanes}")

    def const(self, value: int | float, dtype: str = "int32") -> Expr:
        return splat(tirx.const(value, dtype), self.isa.lanes)

    def widen(self, buffer: Buffer, offset: Expr) -> Expr:
        """Loads the bytes of one channel block of one pixel, and converts them to int32."""
        return tirx.Cast(f"int32x{self.isa.lanes}", load(buffer, offset, self.isa.lanes))

    def cast(self, x: Expr, dtype: str) -> Expr:
        return tirx.Cast(f"{dtype}x{self.isa.lanes}", x)

    def bits(self, x: Expr, dtype: str) -> Expr:
        if isinstance(x, tirx.Broadcast) and isinstance(x.value, tirx.IntImm):
            return self.splat(tensors.TENSORS.bits(x.value, dtype))  # TVM 0.27 cannot reinterpret a constant 0
        return bits(f"{dtype}x{self.isa.lanes}", x)

    def min(self, x: Expr, y: Expr) -> Expr:
        return tirx.min(x, y)

    def max(self, x: Expr, y: Expr) -> Expr:
        return tirx.max(x, y)

    def select(self, condition: Expr, x: Expr, y: Expr) -> Expr:
        return tirx.Select(condition, x, y)

    def equal(self, x: Expr, y: Expr) -> Expr:
        return tirx.EQ(x, y)

    def fma(self, a: Expr, b: Expr, c: Expr) -> Expr:
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.fma", a, b, c)

    def magnitude(self, x: Expr) -> Expr:
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.fabs", x)

    def copy_sign(self, x: Expr, y: Expr) -> Expr:
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.copysign", x, y)

    def floor(self, x: Expr) -> Expr:
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.floor", x)

    def square_root(self, x: Expr) -> Expr:
        return intrinsic(f"float32x{self.isa.lanes}", "llvm.sqrt", x)

    def limited(self, x: Expr) -> Expr:
        return tirx.min(x, self.const(LARGEST, "float32"))  # `round_even` saturates below

    def round_even(self, x: Expr) -> Expr:
        return self.isa.round_even(x)

    def round_away(self, x: Expr) -> Expr:
        return self.cast(tensors.rounded_away(x), "int32")

    def shift_left(self, x: Expr, count: Expr) -> Expr:
        return x << count

    def high_mul(self, x: Expr, significand: Expr) -> Expr:
        """Computes (x * significand + 2**30) >> 31, in 64 bits (`fixed_point.high_mul`)."""
        return self.isa.fixed_point.high_mul(self.program, x, significand)

    def divide_by_pot(self, x: Expr, exponent: Expr) -> Expr:
        """Computes x / 2**exponent, halves away from zero; exponents of at least 1 (`fixed_point.divide_by_pot`)."""
        return self.isa.fixed_point.divide_by_pot(self.program, x, exponent)

    def round_twice(self, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """Computes divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1."""
        return self.isa.fixed_point.round_twice(self.program, x, significand, exponent)

    def scale_once(self, x: Expr, significand: Expr, right: Expr, *, away: bool = True) -> Expr:
        """Computes (x * significand + 2**(right - 1)) >> right in 64 bits.

        Halves are rounded up, or away from zero if `away`. `right` is at least 31, so that the result fits int32.
        """
        return self.isa.fixed_point.scale_once(self.program, x, significand, right, away=away)

    def quotient(self, dividend: Expr, divisor: Expr) -> Expr:
        """Computes dividend / divisor, rounded down, with a float32 multiplication, for 0 <= dividend < 2**22.

        The product (dividend + 1/2) * (1 / divisor) is rounded towards zero. Its exact value differs from every integer
        by at least 1 / (2 * divisor). The float32 error of the product is less than 2**-23 * (dividend + 1/2) /
        divisor, which is smaller than this difference.
        """
        product = (self.cast(dividend, "float32") + self.const(0.5, "float32")) * self.reciprocal(divisor)
        return self.keep(self.cast(product, "int32"))  # a cast rounds towards zero

    def splat(self, x: Expr) -> Expr:
        return splat(x, self.isa.lanes)

    def float_count(self, count: Expr) -> Expr:
        return self.splat(tirx.Cast("float32", count))

    def reciprocal(self, count: Expr) -> Expr:
        return self.splat(tirx.const(1.0, "float32") / tirx.Cast("float32", count))
