"""Rounding of float32 to the values of a 16-bit floating-point type, halves to even (IEEE 754, roundTiesToEven)."""

from __future__ import annotations

from tvm import tirx

from service.compiler.qnn.expressions.ops import Value

HALVES = ("float16", "bfloat16")
# Types of 8 bits: the bits of the fraction, and the exponent of the least normal value.
_BYTES = {
    "float8_e4m3fn": (3, -6),
    "float8_e4m3fnuz": (3, -7),
    "float8_e5m2": (2, -14),
    "float8_e5m2fnuz": (2, -15),
}
NARROW = (*HALVES, *_BYTES)  # the real types with fewer bits than float32

_HALF_SIGN, _HALF_MAGNITUDE, _HALF_INFINITY, _HALF_NAN = 0x8000, 0x7FFF, 0x7C00, 0x7E00
_LEAST_NORMAL_HALF, _SHIFT, _REBIAS = 0x0400, 13, 112 << 23

_SIGN, _MAGNITUDE, _INFINITY, _QUIET = -(1 << 31), 0x7FFFFFFF, 0x7F800000, 0x00400000
_LEAST_NORMAL = 0x38800000  # 2**-14, the least float16 with 11 significant bits
_BEYOND = 0x47800000  # 2**16, the first magnitude after the largest float16
_STEP = 2.0**24  # the distance of smaller float16 values is 1 / _STEP


def rounded(x: Value, dtype: str) -> Value:
    """Returns the value of `dtype`, one of `NARROW`, that is nearest to the float32 `x`, as float32. For a type of 8
    bits, `x` must not exceed the type's largest value.
    """
    bits = tirx.reinterpret("int32", x)
    magnitude, sign = bits & _word(_MAGNITUDE), bits & _word(_SIGN)
    is_nan = magnitude > _word(_INFINITY)
    number = tirx.min(magnitude, _word(_INFINITY))  # rounding a NaN, which is not used, could exceed int32
    if dtype in _BYTES:
        near = _nearest_byte(number, *_BYTES[dtype])
    else:
        near = _nearest(number, 16) if dtype == "bfloat16" else _nearest_float16(number)
    return tirx.reinterpret("float32", tirx.Select(is_nan, bits | _word(_QUIET), near | sign))


def from_float16_bits(word: Value) -> Value:
    """Returns the float32 with the value of a float16, given as its 16 bits (uint16)."""
    bits = tirx.Cast("int32", word)
    magnitude, sign = bits & _word(_HALF_MAGNITUDE), (bits & _word(_HALF_SIGN)) << _word(16)
    subnormal = tirx.reinterpret("int32", tirx.Cast("float32", magnitude) * tirx.const(1 / _STEP, "float32"))
    shifted = magnitude << _word(_SHIFT)
    normal = tirx.Select(magnitude < _word(_LEAST_NORMAL_HALF), subnormal, shifted + _word(_REBIAS))
    special = shifted | _word(_INFINITY)
    return tirx.reinterpret("float32", tirx.Select(magnitude < _word(_HALF_INFINITY), normal, special) | sign)


def to_float16_bits(x: Value) -> Value:
    """Returns the 16 bits (uint16) of the float16 with the value of `x`, a float32 that float16 can hold."""
    bits = tirx.reinterpret("int32", x)
    magnitude, sign = bits & _word(_MAGNITUDE), (bits >> _word(16)) & _word(_HALF_SIGN)
    small = tirx.min(magnitude, _word(_LEAST_NORMAL))  # larger steps could exceed int32
    subnormal = tirx.Cast("int32", tirx.reinterpret("float32", small) * tirx.const(_STEP, "float32"))
    normal = (magnitude - _word(_REBIAS)) >> _word(_SHIFT)
    finite = tirx.Select(magnitude < _word(_LEAST_NORMAL), subnormal, normal)
    special = tirx.Select(magnitude > _word(_INFINITY), _word(_HALF_NAN), _word(_HALF_INFINITY))
    return tirx.Cast("uint16", tirx.Select(magnitude < _word(_INFINITY), finite, special) | sign)


def _nearest_float16(magnitude: Value) -> Value:
    near = _nearest(magnitude, 13)
    finite = tirx.Select(near >= _word(_BEYOND), _word(_INFINITY), near)
    # Steps of larger values, which are not used, could exceed the integers of float32.
    small = tirx.min(magnitude, _word(_LEAST_NORMAL))
    steps = tirx.nearbyint(tirx.reinterpret("float32", small) * tirx.const(_STEP, "float32"))
    subnormal = tirx.reinterpret("int32", steps * tirx.const(1 / _STEP, "float32"))
    return tirx.Select(magnitude < _word(_LEAST_NORMAL), subnormal, finite)


def _nearest_byte(magnitude: Value, fraction: int, least_exponent: int) -> Value:
    least_normal = _word((127 + least_exponent) << 23)
    step = 2.0 ** (fraction - least_exponent)  # the distance of smaller values is 1 / step
    small = tirx.min(magnitude, least_normal)
    steps = tirx.nearbyint(tirx.reinterpret("float32", small) * tirx.const(step, "float32"))
    subnormal = tirx.reinterpret("int32", steps * tirx.const(1 / step, "float32"))
    return tirx.Select(magnitude < least_normal, subnormal, _nearest(magnitude, 23 - fraction))


def _nearest(magnitude: Value, dropped: int) -> Value:
    """Rounds the bits of a magnitude to a multiple of 2**dropped."""
    odd = (magnitude >> _word(dropped)) & _word(1)
    return (magnitude + _word((1 << (dropped - 1)) - 1) + odd) & _word(_MAGNITUDE - (1 << dropped) + 1)


def _word(value: int) -> Value:
    return tirx.const(value, "int32")
