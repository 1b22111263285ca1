"""The scalar operations in which expressions are written.

Values also support the operators `+`, `-`, `*`, `/`, `<<`, `>>`, `^`, `&`, `<` and `>`. Both operands have the same
type. A product is rounded before something is added to it, except in `fma`.
"""

from __future__ import annotations

from typing import Any, Protocol

Value = Any  # a scalar, a vector, or the text of one; int32 or float32 if nothing else is stated

LARGEST = float(1 << 30)  # the limit of a float that is rounded to int32


class Ops(Protocol):
    """The operations of one target."""

    def const(self, value: int | float, dtype: str = "int32") -> Value:
        """Returns a constant."""

    def cast(self, x: Value, dtype: str) -> Value:
        """Converts a value to another type."""

    def bits(self, x: Value, dtype: str) -> Value:
        """Reinterprets the bits of a value as another type of the same size."""

    def keep(self, x: Value, dtype: str = "int32") -> Value:
        """Computes a value of type `dtype` once, at this point."""

    def min(self, x: Value, y: Value) -> Value:
        """Returns the smaller value. If one is NaN, returns `y`."""

    def max(self, x: Value, y: Value) -> Value:
        """Returns the larger value. If one is NaN, returns `y`."""

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """Returns `x` if the condition is true, otherwise `y`."""

    def equal(self, x: Value, y: Value) -> Value:
        """Returns the condition that both values are equal."""

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Computes a * b + c in float32, rounded once."""

    def limited(self, x: Value) -> Value:
        """Limits a float32, so that `round_even` of it fits int32: below and above, or only above if `round_even`
        saturates below."""

    def magnitude(self, x: Value) -> Value:
        """Returns the absolute value of a float32."""

    def copy_sign(self, x: Value, y: Value) -> Value:
        """Returns the magnitude of the float32 `x` with the sign of the float32 `y`."""

    def floor(self, x: Value) -> Value:
        """Rounds a float32 down. The result is float32."""

    def square_root(self, x: Value) -> Value:
        """Returns the square root of a float32, rounded once."""

    def round_even(self, x: Value) -> Value:
        """Rounds a float32 to the nearest int32, halves to the even one."""

    def round_away(self, x: Value) -> Value:
        """Rounds a float32 to the nearest int32, halves away from zero."""

    def shift_left(self, x: Value, count: Value) -> Value:
        """Computes x << count, for counts of 0 to 31. Bits beyond 32 are lost."""

    def high_mul(self, x: Value, significand: Value) -> Value:
        """Computes (x * significand + 2**30) >> 31, in 64 bits (`scaling.fixed_point`)."""

    def divide_by_pot(self, x: Value, exponent: Value) -> Value:
        """Computes x / 2**exponent, halves away from zero, for exponents of at least 1."""

    def round_twice(self, x: Value, significand: Value, exponent: Value) -> Value:
        """Computes divide_by_pot(high_mul(x, significand), exponent), for |x| < 2**30 and exponents of at least 1."""

    def scale_once(self, x: Value, significand: Value, right: Value) -> Value:
        """Computes x * significand / 2**right in 64 bits, halves away from zero. `right` is at least 31, so that the
        result fits int32; generated code also takes smaller ones, and limits the result to 2**30.
        """

    def quotient(self, dividend: Value, divisor: Value) -> Value:
        """Computes dividend / divisor, rounded down, for 0 <= dividend < 2**22 and divisors above 0."""

    def splat(self, x: Value) -> Value:
        """Repeats a scalar in every lane of a vector."""

    def reciprocal(self, count: Value) -> Value:
        """Computes 1 / float32(count), for a scalar int32, and repeats it in every lane."""

    def float_count(self, count: Value) -> Value:
        """Converts a scalar int32 to float32, and repeats it in every lane."""
