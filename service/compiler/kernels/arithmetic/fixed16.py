"""The logistic function and tanh of `qnn.numerics.litert.gemmlowp16` (16-bit fixed-point numbers) on vectors.

The code omits saturation and special cases of gemmlowp that cannot occur here or do not change results. The tests
compare the results for all 65536 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, Program, intrinsic, splat
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics.litert.gemmlowp16 import ONE_Q0, ONE_Q2, constant
from service.compiler.qnn.numerics.scaling.fixed_point import EXP_BARREL_SHIFTER


@dataclass(frozen=True)
class Words:
    """Arithmetic on a vector of `2 * Isa.lanes` 16-bit values."""

    program: Program
    isa: Isa

    @property
    def lanes(self) -> int:
        return 2 * self.isa.lanes

    @property
    def dtype(self) -> str:
        return f"int16x{self.lanes}"

    def logistic(self, x: Expr) -> Expr:
        """Computes 1 / (1 + exp(-x)) in Q0.15, for x in Q3.12."""
        x, one = self._keep(x), self._const(ONE_Q0)
        ratio = self._over_one_plus(self._exp_of_negative(x, 3))
        positive = self._keep(self._sum(ratio, ratio))
        result = tirx.Select(x > self._const(0), positive, one - positive)
        return self._keep(tirx.Select(tirx.EQ(x, self._const(0)), self._const(1 << 14), result))

    def tanh(self, x: Expr, integer_bits: int) -> Expr:
        """Computes tanh(x) in Q0.15, for x with `integer_bits` integer bits."""
        x, zero = self._keep(x), self._const(0)
        above_one = self._keep(self._over_one_plus(self._exp_of_negative(x, integer_bits + 1)) - self._const(ONE_Q2))
        doubled = self._keep(self._sum(above_one, above_one))
        magnitude = self._keep(self._sum(doubled, doubled))
        signed = tirx.Select(x < zero, zero - magnitude, magnitude)
        return self._keep(tirx.Select(tirx.EQ(x, zero), zero, signed))

    def _exp_of_negative(self, x: Expr, integer_bits: int) -> Expr:
        """Computes exp(-|x|) in Q0.15, for nonzero x with `integer_bits` integer bits."""
        a = self._keep(tirx.min(x, self._const(0) - x))
        fraction_bits = 15 - integer_bits
        quarter = 1 << (fraction_bits - 2)
        rest = self._keep((a & self._const(quarter - 1)) - self._const(quarter))
        result = self._exp_of_rest(rest << self._const(integer_bits))
        remainder = self._keep(rest - a)
        for exponent, multiplier in EXP_BARREL_SHIFTER:
            if integer_bits > exponent:
                is_set = tirx.NE(remainder & self._const(1 << (fraction_bits + exponent)), self._const(0))
                product = self._product(result, self._const(constant(multiplier)))
                result = self._keep(tirx.Select(is_set, product, result))
        if integer_bits > 5:
            zero = self._const(0)
            result = self._keep(tirx.Select(a < self._const(-(1 << (20 - integer_bits))), zero, result))
        return result

    def _exp_of_rest(self, a: Expr) -> Expr:
        """Computes exp(a) in Q0.15 for -1/4 <= a < 0, by a Taylor expansion around -1/8."""
        term, third = (self._const(constant(value)) for value in (1895147668, 715827883))
        x = self._keep(a + self._const(1 << 12))
        x2 = self._product(x, x)
        x3, x4 = self._product(x2, x), self._product(x2, x2)
        cubes = self._product(self._keep(self._divided(x4, 2) + x3), third)
        series = self._divided(self._keep(cubes + x2), 1)
        return self._keep(self._sum(term, self._product(term, self._keep(x + series))))

    def _over_one_plus(self, a: Expr) -> Expr:
        """Computes 2 / (1 + a) in Q2.13 for a in Q0.15, by Newton's iteration."""
        half = self._keep((a >> self._const(1)) + self._const(1 << 14))
        slope, start = self._const(constant(-1010580540)), self._const(constant(1515870810))
        x = self._keep(start + self._product(half, slope))
        for _ in range(3):
            error = self._keep(self._const(ONE_Q2) - self._product(half, x))
            x = self._keep(x + (self._product(x, error) << self._const(2)))
        return x

    def _divided(self, x: Expr, exponent: int) -> Expr:
        """Computes x / 2**exponent, halves away from zero (`fixed_point.divide_by_pot`)."""
        one, x = self._const(1), self._keep(x)
        return (((x + (x >> self._const(15))) >> self._const(exponent - 1)) + one) >> one

    def _product(self, x: Expr, y: Expr) -> Expr:
        return self._keep(self.isa.round_product(x, y))

    def _sum(self, x: Expr, y: Expr) -> Expr:
        """Computes x + y, saturated."""
        return intrinsic(self.dtype, "llvm.sadd.sat", x, y)

    def _const(self, value: int) -> Expr:
        return splat(tirx.const(value, "int16"), self.lanes)

    def _keep(self, value: Expr) -> Expr:
        """Stores `value` in a register.

        TVM's simplifier would substitute a bound value at each of its uses. Each value here is used twice by the next
        value, so the code would grow exponentially.
        """
        register = self.program.register("int16", self.lanes)
        register.value = value
        return register.value
