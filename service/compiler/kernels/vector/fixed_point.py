"""Fixed-point arithmetic on vectors of int32 with 64-bit lanes, for instruction sets without faster instructions."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, Program, bits, splat


@dataclass(frozen=True)
class WideFixedPoint:
    """Implements `vector.isa.FixedPoint`.

    Attributes:
        lanes: the lanes of a vector of int32.
    """

    lanes: int

    def high_mul(self, program: Program, x: Expr, significand: Expr) -> Expr:
        """Computes (x * significand + 2**30) >> 31, in 64 bits (`fixed_point.high_mul`).

        The even lanes of x are multiplied in 64-bit lanes. The odd lanes are shifted down first, and their results are
        then in the upper halves of 64-bit lanes.
        """
        nudge = self._wide(1 << 30)
        even, odd = self._products(program, x, significand)
        return self._interleave(program, (even + nudge) >> self._wide(31), (odd + nudge) << self._wide(1))

    def divide_by_pot(self, program: Program, x: Expr, exponent: Expr) -> Expr:
        """Computes x / 2**exponent, halves away from zero; exponents of at least 1 (`fixed_point.divide_by_pot`)."""
        one = self._const(1)
        x = self._keep(program, x)
        return (((x + (x >> self._const(31))) >> (exponent - one)) + one) >> one

    def round_twice(self, program: Program, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        """Computes divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1.

        With s the sign of x (0 or -1), and e the exponent, the two roundings are one floor:
        `(x * m + 2**30 + 2**(30 + e) + s * 2**31) >> (31 + e)`, where m is the significand. (The result of high_mul has
        the sign of x, or it is 0 and the term with s makes no difference.) The code computes twice this sum, of which
        it needs only the upper 32 bits. There, the term with s is s itself.
        """
        half = f"int64x{self.lanes // 2}"
        x, exponent = self._keep(program, x), self._keep(program, exponent)
        even, odd = self._products(program, x + x, significand)
        counts = (bits(half, exponent) & self._wide(0xFFFFFFFF), bits(half, exponent) >> self._wide(32))
        first, second = (self._wide(1 << 31) + (self._wide(1 << 31) << count) for count in counts)
        upper = self._uppers(program, even + first, odd + second)
        return self._keep(program, (upper + (x >> self._const(31))) >> exponent)

    def scale_once(self, program: Program, x: Expr, significand: Expr, right: Expr, *, away: bool) -> Expr:
        """Computes (x * significand + 2**(right - 1)) >> right in 64 bits.

        Halves are rounded up, or away from zero if `away`. `right` is at least 31, so that the result fits int32.
        """
        half = f"int64x{self.lanes // 2}"
        right = self._keep(program, right)
        counts = (bits(half, right) & self._wide(0xFFFFFFFF), bits(half, right) >> self._wide(32))

        def rounded(product: Expr, count: Expr) -> Expr:
            nudged = product + (product >> self._wide(63)) if away else product
            return (nudged + (self._wide(1) << (count - self._wide(1)))) >> count

        products = self._products(program, x, significand)
        even, odd = (rounded(product, count) for product, count in zip(products, counts, strict=True))
        return self._interleave(program, even, odd << self._wide(32))

    def _products(self, program: Program, x: Expr, y: Expr) -> tuple[Expr, Expr]:
        half = f"int64x{self.lanes // 2}"
        a, b = (program.bind(bits(half, value), half) for value in (x, y))
        down = self._wide(32)
        even = ((a << down) >> down) * ((b << down) >> down)
        return program.bind(even, half), program.bind((a >> down) * (b >> down), half)

    def _interleave(self, program: Program, even: Expr, odd: Expr) -> Expr:
        lanes, dtype = self.lanes, f"int32x{self.lanes}"
        order = [tirx.const(lane + (lane % 2) * lanes, "int32") for lane in range(lanes)]
        return self._keep(program, tirx.Shuffle([bits(dtype, even), bits(dtype, odd)], order))

    def _uppers(self, program: Program, even: Expr, odd: Expr) -> Expr:
        """Interleaves the upper halves of the 64-bit lanes of `even` and `odd`."""
        lanes, dtype = self.lanes, f"int32x{self.lanes}"
        order = [tirx.const(lane + lanes if lane % 2 else lane + 1, "int32") for lane in range(lanes)]
        return self._keep(program, tirx.Shuffle([bits(dtype, even), bits(dtype, odd)], order))

    def _wide(self, value: int) -> Expr:
        return splat(tirx.const(value, "int64"), self.lanes // 2)

    def _keep(self, program: Program, value: Expr) -> Expr:
        return program.bind(value, f"int32x{self.lanes}")

    def _const(self, value: int) -> Expr:
        return splat(tirx.const(value, "int32"), self.lanes)
