"""Prints expressions (`qnn.expressions`) as types of CUDA C++.

The functions that the code calls are in `source/prelude.cuh` and `source/rounding.cuh`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.kernels.cuda.text import TYPES
from service.core.models.arrays import Array

_LEAST = -(1 << 31)


@dataclass(frozen=True)
class Text:
    """The text of a value.

    Attributes:
        dtype: the type of the value; bool for a condition.
    """

    text: str
    dtype: str = "int32"

    def _is_float(self) -> bool:
        return self.dtype == "float32"

    def _combine(self, function: str, operator: str, other: Text | int) -> Text:
        operand = _constant(other, self.dtype) if isinstance(other, int) else other.text
        if self._is_float():
            return Text(f"({self.text} {operator} {operand})", self.dtype)
        return Text(f"{function}({self.text}, {operand})", self.dtype)

    def _operator(self, operator: str, other: Text | int, dtype: str = "") -> Text:
        operand = _constant(other, self.dtype) if isinstance(other, int) else other.text
        return Text(f"({self.text} {operator} {operand})", dtype or self.dtype)

    def __add__(self, other: Text | int) -> Text:
        return self._combine("add", "+", other)

    def __sub__(self, other: Text | int) -> Text:
        return self._combine("subtract", "-", other)

    def __mul__(self, other: Text | int) -> Text:
        return self._combine("multiply", "*", other)

    def __truediv__(self, other: Text) -> Text:
        return self._operator("/", other)

    def __lshift__(self, other: Text | int) -> Text:
        return self._combine("shift_left", "<<", other)

    def __rshift__(self, other: Text | int) -> Text:
        return self._operator(">>", other)

    def __xor__(self, other: Text) -> Text:
        return self._operator("^", other)

    def __and__(self, other: Text) -> Text:
        return self._operator("&", other)

    def __neg__(self) -> Text:
        return Text(f"(-{self.text})", self.dtype)

    def __lt__(self, other: Text) -> Text:
        return self._operator("<", other, "bool")

    def __gt__(self, other: Text) -> Text:
        return self._operator(">", other, "bool")

    def __le__(self, other: Text) -> Text:
        return self._operator("<=", other, "bool")

    def __ge__(self, other: Text) -> Text:
        return self._operator(">=", other, "bool")


class CudaOps:
    """Implements `qnn.expressions.ops.Ops` on the text of scalars, in one function.

    Attributes:
        statements: the declarations of the values that are computed once.
    """

    def __init__(self) -> None:
        self.statements: list[str] = []

    def const(self, value: int | float, dtype: str = "int32") -> Text:
        return Text(_constant(value, dtype), dtype)

    def cast(self, x: Text, dtype: str) -> Text:
        return x if x.dtype == dtype else Text(f"static_cast<{_type(dtype)}>({x.text})", dtype)

    def bits(self, x: Text, dtype: str) -> Text:
        return Text(f"{'__int_as_float' if dtype == 'float32' else '__float_as_int'}({x.text})", dtype)

    def keep(self, x: Text, dtype: str = "int32") -> Text:
        name = f"t{len(self.statements)}"
        self.statements.append(f"const {_type(dtype)} {name} = {x.text};")
        return Text(name, dtype)

    def min(self, x: Text, y: Text) -> Text:
        return _call("fminf" if x.dtype == "float32" else "min", x.dtype, x, y)

    def max(self, x: Text, y: Text) -> Text:
        return _call("fmaxf" if x.dtype == "float32" else "max", x.dtype, x, y)

    def select(self, condition: Text, x: Text, y: Text) -> Text:
        return Text(f"({condition.text} ? {x.text} : {y.text})", x.dtype)

    def equal(self, x: Text, y: Text) -> Text:
        return Text(f"({x.text} == {y.text})", "bool")

    def fma(self, a: Text, b: Text, c: Text) -> Text:
        return _call("fmaf", "float32", a, b, c)

    def magnitude(self, x: Text) -> Text:
        return _call("fabsf", "float32", x)

    def copy_sign(self, x: Text, y: Text) -> Text:
        return _call("copysignf", "float32", x, y)

    def floor(self, x: Text) -> Text:
        return _call("floorf", "float32", x)

    def square_root(self, x: Text) -> Text:
        return _call("sqrtf", "float32", x)

    def limited(self, x: Text) -> Text:
        return Text(f"fminf({x.text}, kLargest)", "float32")  # `rounded` saturates below

    def round_even(self, x: Text) -> Text:
        return _call("rounded", "int32", x)

    def round_away(self, x: Text) -> Text:
        return Text(f"static_cast<i32>(roundf({x.text}))")

    def shift_left(self, x: Text, count: Text) -> Text:
        return x << count

    def high_mul(self, x: Text, significand: Text) -> Text:
        return _call("high_mul", "int32", x, significand)

    def divide_by_pot(self, x: Text, exponent: Text) -> Text:
        return _call("divide_by_pot", "int32", x, exponent)

    def round_twice(self, x: Text, significand: Text, exponent: Text) -> Text:
        return self.divide_by_pot(self.high_mul(x, significand), exponent)

    def scale_once(self, x: Text, significand: Text, right: Text) -> Text:
        return _call("scale_once", "int32", x, significand, right)

    def quotient(self, dividend: Text, divisor: Text) -> Text:
        return _call("quotient", "int32", dividend, divisor)

    def splat(self, x: Text) -> Text:
        return x

    def float_count(self, count: Text) -> Text:
        return self.cast(count, "float32")

    def reciprocal(self, count: Text) -> Text:
        return Text(f"(1.0f / static_cast<float>({count.text}))", "float32")


@dataclass(frozen=True)
class Member:
    """A function of a type.

    Attributes:
        head: the declaration, without attributes.
        express: returns the result.
    """

    head: str
    express: Callable[[CudaOps], Text]

    @property
    def lines(self) -> list[str]:
        ops = CudaOps()
        result = self.express(ops)
        return [
            f"__device__ {self.head} {{",
            *(f"  {line}" for line in ops.statements),
            f"  return {result.text};",
            "}",
        ]


def struct(name: str, lines: Sequence[str], *members: Member) -> str:
    """Returns the definition of a type in the namespace of the headers."""
    body = [*lines, *(line for member in members for line in member.lines)]
    return "\n".join(["namespace octet {", f"struct {name} {{", *(f"  {line}" for line in body), "};", "}", ""])


def fields(arrays: Sequence[Array], prefix: str, *, pointers: bool = False) -> list[str]:
    """Returns the declarations of one member for each array: a value of its type, or a pointer to its elements."""
    star = "*" if pointers else ""
    return [f"const {_type(str(array.dtype))}{star} {prefix}{index};" for index, array in enumerate(arrays)]


def texts(arrays: Sequence[Array], form: str) -> list[Text]:
    """Returns the value of each array. `form` is its text, in which `#` is the number of the array."""
    return [Text(form.replace("#", str(index)), str(array.dtype)) for index, array in enumerate(arrays)]


def _call(function: str, dtype: str, *operands: Text) -> Text:
    return Text(f"{function}({', '.join(operand.text for operand in operands)})", dtype)


def _type(dtype: str) -> str:
    return TYPES[dtype].removeprefix("octet::")


def _constant(value: int | float, dtype: str) -> str:
    if dtype == "float32":
        bits = int(np.float32(value).view(np.int32))
        return f"{float(np.float32(value))!r}f" if np.isfinite(value) else f"__int_as_float({bits})"
    return "(-2147483647 - 1)" if value == _LEAST else str(int(value))
