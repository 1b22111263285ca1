"""The scalar operations in tensor IR, from which TVM generates code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.qnn.expressions.ops import LARGEST, Value
from service.core.models.arrays import Array


@dataclass(frozen=True)
class TensorOps:
    """Implements `ops.Ops` on tensor IR's scalars, or on vectors of `lanes`."""

    lanes: int = 1

    def dtype(self, name: str) -> str:
        return f"{name}x{self.lanes}" if self.lanes > 1 else name

    def const(self, value: int | float, dtype: str = "int32") -> Value:
        if isinstance(value, float) and not math.isfinite(value):  # TVM's JSON cannot represent it
            bits = tirx.const(int(np.array(value, np.float32).view(np.int32)), "int32")
            return self.splat(tirx.reinterpret(dtype, bits))
        return self.splat(tirx.const(value, dtype))

    def cast(self, x: Value, dtype: str) -> Value:
        return tirx.Cast(self.dtype(dtype), x) if self.lanes > 1 else x.astype(dtype)

    def bits(self, x: Value, dtype: str) -> Value:
        if isinstance(x, tirx.IntImm) and dtype == "float32":  # TVM 0.27 cannot generate code for a reinterpreted 0
            value = float(np.array(int(x), np.int32).view(np.float32))
            if math.isfinite(value):
                return self.const(value, dtype)
        return tirx.reinterpret(self.dtype(dtype), x)

    def keep(self, x: Value, dtype: str = "int32") -> Value:
        return x

    def min(self, x: Value, y: Value) -> Value:
        return tirx.min(x, y)

    def max(self, x: Value, y: Value) -> Value:
        return tirx.max(x, y)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        return tirx.Select(condition, x, y)

    def equal(self, x: Value, y: Value) -> Value:
        return tirx.EQ(x, y)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return fma(a, b, c, self.lanes)

    def magnitude(self, x: Value) -> Value:
        return tirx.call_llvm_pure_intrin(self.dtype("float32"), "llvm.fabs", x)

    def copy_sign(self, x: Value, y: Value) -> Value:
        return tirx.call_llvm_pure_intrin(self.dtype("float32"), "llvm.copysign", x, y)

    def floor(self, x: Value) -> Value:
        return tirx.call_llvm_pure_intrin(self.dtype("float32"), "llvm.floor", x)

    def square_root(self, x: Value) -> Value:
        return tirx.call_llvm_pure_intrin(self.dtype("float32"), "llvm.sqrt", x)

    def limited(self, x: Value) -> Value:
        # The lower limit comes first: both compare and select, so that NaN becomes the lower limit.
        return self.min(self.max(x, self.const(-LARGEST, "float32")), self.const(LARGEST, "float32"))

    def round_even(self, x: Value) -> Value:
        return self.cast(tirx.nearbyint(x), "int32")

    def round_away(self, x: Value) -> Value:
        return self.cast(rounded_away(x), "int32")

    def shift_left(self, x: Value, count: Value) -> Value:
        return x << shift_count(count, "int32", 0, 31)

    def high_mul(self, x: Value, significand: Value) -> Value:
        return high_mul(x, significand)

    def divide_by_pot(self, x: Value, exponent: Value) -> Value:
        return divide_by_pot(x, exponent)

    def round_twice(self, x: Value, significand: Value, exponent: Value) -> Value:
        return divide_by_pot(high_mul(x, significand), exponent)

    def scale_once(self, x: Value, significand: Value, right: Value) -> Value:
        wide = "int64"
        count = shift_count(right.astype(wide), wide, 0, 62)
        away = tirx.Select(x < tirx.const(0, "int32"), tirx.const(1, wide), tirx.const(0, wide))
        half = (tirx.const(1, wide) << count) >> tirx.const(1, wide)
        scaled = (x.astype(wide) * significand.astype(wide) + half - away) >> count
        limit = tirx.const(1 << 30, wide)
        return tirx.max(tirx.min(scaled, limit), -limit).astype("int32")

    def quotient(self, dividend: Value, divisor: Value) -> Value:
        return tirx.truncdiv(dividend, divisor)

    def splat(self, x: Value) -> Value:
        return tirx.Broadcast(x, self.lanes) if self.lanes > 1 else x

    def float_count(self, count: Value) -> Value:
        return self.splat(count.astype("float32"))

    def reciprocal(self, count: Value) -> Value:
        return self.splat(tirx.const(1.0, "float32") / count.astype("float32"))


TENSORS = TensorOps()


@dataclass(frozen=True)
class BoundOps(TensorOps):
    """Computes each value of `keep` once.

    Attributes:
        bind: returns a variable that holds a value; the arguments are the value, and its type with the lanes.
    """

    bind: Callable[[Value, str], Value] = lambda value, dtype: value

    def keep(self, x: Value, dtype: str = "int32") -> Value:
        return self.bind(x, self.dtype(dtype))


def in_one(express: Callable[[Callable[[Value, str], Value]], Value]) -> Value:
    """Returns the single expression of `express(bind)`, in which values are bound before they are read."""
    bound: list[tuple[tirx.Var, Value]] = []

    def bind(value: Value, dtype: str) -> Value:
        variable = tirx.Var(f"t{len(bound)}", dtype)
        bound.append((variable, value))
        return variable

    result = express(bind)
    for variable, value in reversed(bound):
        result = tirx.Let(variable, value, result)
    return result


def shift_count(count: Value, dtype: str, low: int, high: int) -> Value:
    """Returns `count`, which is in low..high, clamped to this range, so that TVM can rely on the bounds.

    TVM 0.27 assumes that a right shift by an amount that might be negative leaves only the sign, and then simplifies a
    clamp of the result away.
    """
    return tirx.max(tirx.min(count, tirx.const(high, dtype)), tirx.const(low, dtype))


def high_mul(a: Value, b: Value) -> Value:
    """Computes (a * b + 2**30) >> 31 of int32 values that are not both the minimum.

    Truncating after adding a signed half equals a floor after adding 2**30. The sum fits 64 bits, and one shift is
    enough.
    """
    product = a.astype("int64") * b.astype("int64") + tirx.const(1 << 30, "int64")
    return (product >> tirx.const(31, "int64")).astype("int32")


def divide_by_pot(x: Value, exponent: Value, away: Value | None = None) -> Value:
    """Computes x / 2**exponent of int32 values above the minimum, halves away from zero, for exponents of at least 1.
    If the int32 mask `away` is 0 instead of -1, halves are rounded up.

    Subtracts one from negative values, shifts by all bits but one, adds one, and shifts by the last bit. Nothing
    overflows, and `x` occurs only twice. (Tensor IR is a tree: a formula that contains its operand three times contains
    it 27 times when nested three deep.)
    """
    one, sign = tirx.const(1, "int32"), tirx.const(31, "int32")
    exponent = shift_count(exponent, "int32", 1, 31)
    less = x >> sign if away is None else (x >> sign) & away
    return (((x + less) >> (exponent - one)) + one) >> one


def scale_by(x: Value, significand: Value, shift: Value, shifts: Array, away: Value | None = None) -> Value:
    """Computes `fixed_point.multiply_by_quantized_multiplier` of int32 values. If the int32 mask `away` is 0 instead of
    -1, halves are rounded up both times. `shifts` are all possible values of `shift`.
    """
    if (shifts > 0).any():
        x = x << shift_count(shift, "int32", 0, 31)
    x = high_mul(x, significand)
    if (shifts >= 0).all():
        return x
    divided = divide_by_pot(x, -shift, away)
    return divided if (shifts < 0).all() else tirx.Select(shift < tirx.const(0, "int32"), divided, x)


def fma(a: Value, b: Value, c: Value, lanes: int = 1) -> Value:
    """Computes a * b + c in float32, rounded once, on vectors of `lanes`."""
    return tirx.call_llvm_pure_intrin(f"float32x{lanes}" if lanes > 1 else "float32", "llvm.fma", a, b, c)


def rounded_away(value: Value, dtype: str = "float32") -> Value:
    """Rounds a float to the nearest integer, halves away from zero, as C's round does (`tirx.round` rounds halves to
    even).
    """
    whole = tirx.trunc(value)
    one, half = tirx.const(1.0, dtype), tirx.const(0.5, dtype)
    rest = value - whole  # exact
    return tirx.Select(rest >= half, whole + one, tirx.Select(rest <= -half, whole - one, whole))
