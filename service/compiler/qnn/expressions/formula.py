"""Formulas that are written as Python functions. Tracing them once (`expressions.tracing`) gives an expression over the
scalar operations:

    expression = trace(lambda x: x / (1 + abs(x)), ["float32"], result="float32")
    expression.express(ARRAYS, [values])      # in NumPy, for the oracle
    expression.express(TENSORS, [element])    # as tensor IR

A formula computes with `Scalar`s. They support `+`, `-`, `*`, comparisons, and with numbers on either side; float32
values also `/` and `abs`, int32 values also `<<`, `>>`, `&` and `^`. Every operation of float32 rounds once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from service.compiler.qnn.expressions import functions
from service.compiler.qnn.expressions.ops import Ops, Value
from service.core.errors import InvalidInput, UnsupportedOperator

Number = int | float
_INT32 = range(-(1 << 31), 1 << 31)


class InvalidFormula(InvalidInput):
    """A formula does something that cannot be expressed on every target."""

    code = "invalid_formula"


class Scalar:
    """A value of a formula while it is traced.

    Attributes:
        dtype: float32, int32 or bool.
        number: the value of a constant; None for others.
    """

    def __init__(
        self, compute: Callable[..., Value], operands: Sequence[Scalar], dtype: str, number: Number | None = None
    ) -> None:
        """`compute(ops, *operands)` returns the value."""
        self.compute, self.operands, self.dtype, self.number = compute, tuple(operands), dtype, number

    def __add__(self, other: Scalar | Number) -> Scalar:
        return _binary("+", lambda ops, a, b: a + b, self, other)

    def __radd__(self, other: Number) -> Scalar:
        return _binary("+", lambda ops, a, b: a + b, other, self)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return _binary("-", lambda ops, a, b: a - b, self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return _binary("-", lambda ops, a, b: a - b, other, self)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return _binary("*", lambda ops, a, b: a * b, self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return _binary("*", lambda ops, a, b: a * b, other, self)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return _divided(self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return _divided(other, self)

    def __lshift__(self, other: Scalar | int) -> Scalar:
        return _shifted("<<", lambda ops, a, b: ops.shift_left(a, b), self, other)

    def __rshift__(self, other: Scalar | int) -> Scalar:
        return _shifted(">>", lambda ops, a, b: a >> b, self, other)

    def __and__(self, other: Scalar | int) -> Scalar:
        return _binary("&", lambda ops, a, b: a & b, self, other, dtype="int32")

    def __xor__(self, other: Scalar | int) -> Scalar:
        return _binary("^", lambda ops, a, b: a ^ b, self, other, dtype="int32")

    def __neg__(self) -> Scalar:
        return self * -1

    def __abs__(self) -> Scalar:
        if self.dtype == "float32":
            return Scalar(lambda ops, x: ops.magnitude(x), [self], self.dtype)
        return maximum(self, -self)

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return _compared("<", lambda ops, a, b: a < b, self, other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return _compared(">", lambda ops, a, b: a > b, self, other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return _compared("<=", lambda ops, a, b: a <= b, self, other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return _compared(">=", lambda ops, a, b: a >= b, self, other)

    def __eq__(self, other: object) -> Scalar:  # type: ignore[override]
        if not isinstance(other, Scalar | int | float):
            raise InvalidFormula(f"a value cannot be compared with {other!r}")
        return _compared("==", lambda ops, a, b: ops.equal(a, b), self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise InvalidFormula("a value is not known while the formula is traced: write where(condition, a, b), not if")


def minimum(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """Returns the smaller value. If one is NaN, returns `b`."""
    return _binary("minimum", lambda ops, a, b: ops.select(a < b, a, b), a, b)


def maximum(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """Returns the larger value. If one is NaN, returns `b`."""
    return _binary("maximum", lambda ops, a, b: ops.select(a > b, a, b), a, b)


def clip(x: Scalar, low: Number, high: Number) -> Scalar:
    """Returns x, but at least `low` and at most `high`. NaN stays NaN."""
    return where(x < low, low, where(x > high, high, x))


def where(condition: Scalar, a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """Returns `a` if the condition is true, otherwise `b`."""
    if not isinstance(condition, Scalar) or condition.dtype != "bool":
        raise InvalidFormula("the first operand of where must be a comparison")
    a, b = _alike("where", a, b)
    return Scalar(lambda ops, condition, a, b: ops.select(condition, a, b), [condition, a, b], a.dtype)


def fma(a: Scalar | Number, b: Scalar | Number, c: Scalar | Number) -> Scalar:
    """Returns a * b + c of float32 values, rounded once."""
    operands = [scalar(each, "float32") for each in (a, b, c)]
    _require("fma", "float32", *operands)
    return Scalar(lambda ops, a, b, c: ops.fma(a, b, c), operands, "float32")


def floor(x: Scalar) -> Scalar:
    """Rounds a float32 value down. The result is float32."""
    return _of_float("floor", lambda ops, x: ops.floor(x), x)


def sqrt(x: Scalar) -> Scalar:
    """Returns the square root of a float32 value, rounded once."""
    return _of_float("sqrt", lambda ops, x: ops.square_root(x), x)


def exp(x: Scalar) -> Scalar:
    """Returns e**x of a float32 value, with the bits of ONNX Runtime's Exp."""
    return _of_float("exp", functions.exp, x)


def erf(x: Scalar) -> Scalar:
    """Returns the error function of a float32 value, with the bits of ONNX Runtime's Erf."""
    return _of_float("erf", functions.erf, x)


def tanh(x: Scalar) -> Scalar:
    """Returns the hyperbolic tangent of a float32 value, with the bits of ONNX Runtime's Tanh."""
    return _of_float("tanh", functions.tanh, x)


def sigmoid(x: Scalar) -> Scalar:
    """Returns 1 / (1 + e**-x) of a float32 value, with the bits of ONNX Runtime's Sigmoid."""
    return _of_float("sigmoid", functions.logistic, x)


def log(x: Scalar) -> Scalar:
    """Returns the natural logarithm of a float32 value, correctly rounded.

    It can be used only in functions of 8-bit values, which become tables: no instruction computes it with the same bits
    on every machine.
    """

    def compute(ops: Ops, x: Value) -> Value:
        rounded = getattr(ops, "log", None)
        if rounded is None:
            raise UnsupportedOperator(
                "log has no form with the same bits on every machine, so only a function of 8-bit values can use it",
                hint="quantize the operand and the result to 8 bits: the function then becomes a table",
            )
        return rounded(x)

    return _of_float("log", compute, x)


def to_float(x: Scalar) -> Scalar:
    """Converts an int32 value to float32."""
    _require("to_float", "int32", x)
    return Scalar(lambda ops, x: ops.cast(x, "float32"), [x], "float32")


def round_even(x: Scalar) -> Scalar:
    """Rounds a float32 value to the nearest int32, halves to the even one. Values are limited to 2**30."""
    _require("round_even", "float32", x)
    return Scalar(lambda ops, x: ops.round_even(_bounded(ops, x)), [x], "int32")


def round_away(x: Scalar) -> Scalar:
    """Rounds a float32 value to the nearest int32, halves away from zero. Values are limited to 2**30."""
    _require("round_away", "float32", x)
    return Scalar(lambda ops, x: ops.round_away(_bounded(ops, x)), [x], "int32")


def multiply_high(x: Scalar, significand: Scalar | int) -> Scalar:
    """Returns (x * significand + 2**30) >> 31, in 64 bits: gemmlowp's product with a fraction of 31 bits."""
    return _binary("multiply_high", lambda ops, a, b: ops.high_mul(a, b), x, significand, dtype="int32")


def divide_by_power(x: Scalar, exponent: Scalar | int) -> Scalar:
    """Returns x / 2**exponent, halves away from zero, for exponents of at least 1."""
    # Vectors divide numbers above -2**31 only. The next number has the same result.
    least = maximum(x, 1 - (1 << 31))
    return _binary("divide_by_power", lambda ops, a, b: ops.divide_by_pot(a, b), least, exponent, dtype="int32")


def not_given(*_: Any) -> Value:
    raise InvalidFormula("the formula uses a value of another formula")


def scalar(value: Scalar | Number, dtype: str) -> Scalar:
    if isinstance(value, Scalar):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidFormula(f"a formula cannot compute with {value!r}")
    if dtype == "int32":
        if value != int(value) or int(value) not in _INT32:
            raise InvalidFormula(f"{value} is not an int32 number")
        return Scalar(lambda ops: ops.const(int(value), "int32"), (), "int32", int(value))
    with np.errstate(over="ignore"):
        number = float(np.float32(value))
    return Scalar(lambda ops: ops.const(number, "float32"), (), "float32", number)


def _alike(name: str, a: Scalar | Number, b: Scalar | Number) -> tuple[Scalar, Scalar]:
    """Returns both operands as values of one type. A number takes the type of the other operand."""
    dtypes = {each.dtype for each in (a, b) if isinstance(each, Scalar)}
    if not dtypes:
        dtypes = {"float32"}
    if len(dtypes) > 1:
        raise InvalidFormula(f"the operands of {name} are {' and '.join(sorted(dtypes))}: convert one of them")
    (dtype,) = dtypes
    return scalar(a, dtype), scalar(b, dtype)


def _binary(
    name: str, compute: Callable[..., Value], a: Scalar | Number, b: Scalar | Number, dtype: str | None = None
) -> Scalar:
    a, b = _alike(name, a, b)
    _require(name, dtype, a, b)
    if a.dtype == "bool":
        raise InvalidFormula(f"{name} cannot be applied to a comparison: write where(condition, a, b)")
    return Scalar(compute, [a, b], a.dtype)


def _divided(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    return _binary("/", lambda ops, a, b: a / b, a, b, dtype="float32")


def _shifted(name: str, compute: Callable[..., Value], x: Scalar, count: Scalar | int) -> Scalar:
    if not isinstance(count, Scalar) and count not in range(32):
        raise InvalidFormula(f"{name} shifts int32 by 0 to 31 bits, not by {count}")
    return _binary(name, compute, x, count, dtype="int32")


def _compared(name: str, compute: Callable[..., Value], a: Scalar | Number, b: Scalar | Number) -> Scalar:
    if any(isinstance(each, float) and math.isnan(each) for each in (a, b)):
        raise InvalidFormula("a comparison with NaN is always false")
    a, b = _alike(name, a, b)
    return Scalar(compute, [a, b], "bool")


def _of_float(name: str, compute: Callable[..., Value], x: Scalar) -> Scalar:
    _require(name, "float32", x)
    return Scalar(compute, [x], "float32")


def _require(name: str, dtype: str | None, *operands: Scalar) -> None:
    for each in operands:
        if dtype is not None and (not isinstance(each, Scalar) or each.dtype != dtype):
            kind = each.dtype if isinstance(each, Scalar) else type(each).__name__
            raise InvalidFormula(f"{name} takes {dtype}, not {kind}")


def _bounded(ops: Ops, x: Value) -> Value:
    """Limits a float32 to 2**30. NaN becomes the lower limit."""
    low, high = (ops.const(sign * float(1 << 30), "float32") for sign in (-1, 1))
    return ops.select(x > low, ops.select(x < high, x, high), low)
