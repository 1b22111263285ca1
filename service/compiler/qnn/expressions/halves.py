"""Rounding of float32 to the values of a 16-bit floating-point type, halves to even (IEEE 754, roundTiesToEven)."""

from __future__ import annotations

from tvm import tirx

from service.compiler.qnn.expressions.ops import Value

HALVES = ("float16", "bfloat16")

_SIGN, _MAGNITUDE, _INFINITY, _QUIET = -(1 << 31), 0x7FFFFFFF, 0x7F800000, 0x00400000
_LEAST_NORMAL = 0x38800000  # 2**-14, the least float16 with 11 significant bits
_BEYOND = 0x47800000  # 2**16, the first magnitude after the largest float16
_STEP = 2.0**24  # the distance of smaller float16 values is 1 / _STEP


def rounded(x: Value, dtype: str) -> Value:
    """Returns the value of `dtype`, float16 or bfloat16, that is nearest to the float32 `x`, as float32."""
    bits = tirx.reinterpret("int32", x)
    magnitude, sign = bits & _word(_MAGNITUDE), bits & _word(_SIGN)
    is_nan = magnitude > _word(_INFINITY)
    number = tirx.min(magnitude, _word(_INFINITY))  # rounding a NaN, which is not used, could exceed int32
    near = _nearest(number, 16) if dtype == "bfloat16" else _nearest_float16(number)
    return tirx.reinterpret("float32", tirx.Select(is_nan, bits | _word(_QUIET), near | sign))


def _nearest_float16(magnitude: Value) -> Value:
    near = _nearest(magnitude, 13)
    finite = tirx.Select(near >= _word(_BEYOND), _word(_INFINITY), near)
    # Steps of larger values, which are not used, could exceed the integers of float32.
    small = tirx.min(magnitude, _word(_LEAST_NORMAL))
    steps = tirx.nearbyint(tirx.reinterpret("float32", small) * tirx.const(_STEP, "float32"))
    subnormal = tirx.reinterpret("int32", steps * tirx.const(1 / _STEP, "float32"))
    return tirx.Select(magnitude < _word(_LEAST_NORMAL), subnormal, finite)


def _nearest(magnitude: Value, dropped: int) -> Value:
    """Rounds the bits of a magnitude to a multiple of 2**dropped."""
    odd = (magnitude >> _word(dropped)) & _word(1)
    return (magnitude + _word((1 << (dropped - 1)) - 1) + odd) & _word(_MAGNITUDE - (1 << dropped) + 1)


def _word(value: int) -> Value:
    return tirx.const(value, "int32")
