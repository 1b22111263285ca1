"""The scalar operations on NumPy arrays, for the oracle.

Values are int32, float32 and bool arrays. Integers wrap around at 32 bits, and each float32 operation rounds once.
"""

from __future__ import annotations

import numpy as np

from service.compiler.qnn.expressions.ops import LARGEST, Value
from service.compiler.qnn.numerics.scaling import fused, rounding
from service.core.models.arrays import Array


class ArrayOps:
    """Implements `ops.Ops`."""

    def const(self, value: int | float, dtype: str = "int32") -> Array:
        return np.asarray(value, dtype)

    def cast(self, x: Array, dtype: str) -> Array:
        """Converts floats to integers towards zero. Values that int32 cannot hold give -2**31, as on x86."""
        if dtype == "int32" and x.dtype == np.float32:
            fits = np.abs(x) < np.float32(2.0**31)
            return np.where(fits, np.where(fits, x, 0).astype(np.int64), -(1 << 31)).astype(np.int32)
        return x.astype(dtype)

    def bits(self, x: Array, dtype: str) -> Array:
        return np.ascontiguousarray(x).view(dtype).reshape(x.shape)

    def keep(self, x: Array, dtype: str = "int32") -> Array:
        return x

    def min(self, x: Array, y: Array) -> Array:
        return np.where(x < y, x, y)

    def max(self, x: Array, y: Array) -> Array:
        return np.where(x > y, x, y)

    def select(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    def equal(self, x: Array, y: Array) -> Array:
        return np.asarray(x == y)

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        return fused.fma(a, b, c)

    def magnitude(self, x: Array) -> Array:
        return np.asarray(np.abs(x))

    def copy_sign(self, x: Array, y: Array) -> Array:
        return np.asarray(np.copysign(x, y))

    def floor(self, x: Array) -> Array:
        return np.asarray(np.floor(x))

    def square_root(self, x: Array) -> Array:
        return np.asarray(np.sqrt(x))

    def log(self, x: Array) -> Array:
        """Returns the natural logarithm of float32, correctly rounded (up to double rounding)."""
        return np.asarray(np.log(x.astype(np.float64)).astype(np.float32))

    def limited(self, x: Array) -> Array:
        low, high = (self.const(sign * LARGEST, "float32") for sign in (-1, 1))
        return self.min(self.max(x, low), high)

    def round_even(self, x: Array) -> Array:
        return self.cast(np.asarray(rounding.round_even(x)), "int32")

    def round_away(self, x: Array) -> Array:
        whole = np.trunc(x)
        away = np.copysign(np.float32(1), x) * (np.abs(x - whole) >= np.float32(0.5))
        return self.cast(np.asarray(whole + away, np.float32), "int32")

    def shift_left(self, x: Array, count: Array) -> Array:
        return np.left_shift(x, count)

    def high_mul(self, x: Array, significand: Array) -> Array:
        return ((x.astype(np.int64) * significand + (1 << 30)) >> 31).astype(np.int32)

    def divide_by_pot(self, x: Array, exponent: Array) -> Array:
        half = np.int64(1) << (exponent.astype(np.int64) - 1)
        wide = x.astype(np.int64)
        return ((wide + half - (wide < 0)) >> exponent.astype(np.int64)).astype(np.int32)

    def round_twice(self, x: Array, significand: Array, exponent: Array) -> Array:
        return self.divide_by_pot(self.high_mul(x, significand), exponent)

    def scale_once(self, x: Array, significand: Array, right: Array) -> Array:
        wide, count = x.astype(np.int64), right.astype(np.int64)
        half = (np.int64(1) << count) >> 1
        scaled = (wide * significand + half - (wide < 0)) >> count
        return np.asarray(np.clip(scaled, -(1 << 30), 1 << 30), np.int32)

    def quotient(self, dividend: Array, divisor: Array) -> Array:
        return np.asarray(dividend // divisor)

    def splat(self, x: Value) -> Value:
        return x

    def reciprocal(self, count: Array) -> Array:
        return np.asarray(np.float32(1) / count.astype(np.float32))

    def float_count(self, count: Array) -> Array:
        return np.asarray(count, np.float32)


ARRAYS = ArrayOps()
