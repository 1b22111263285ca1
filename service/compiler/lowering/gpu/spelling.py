"""The names of types, constants and operations in CUDA C++ (`kernels/cuda/source/plain.cuh`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from tvm import tirx

from service.core.errors import Unsupported

TYPES: Mapping[str, str] = {
    "bool": "bool",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float32": "float",
    "float64": "double",
}
# The names of C's functions of float64. The names for float32 have an additional f at the end.
_LIBRARY: tuple[str, ...] = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp10",
    "exp2",
)
_LIBRARY += ("log", "log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh")
INEXACT = frozenset(f"tirx.{name}" for name in _LIBRARY)
EXACT: Mapping[str, str] = {  # functions whose results are correctly rounded
    "tirx.ceil": "ceil",
    "prim.ceil": "ceil",
    "tirx.copysign": "copysign",
    "tirx.fabs": "fabs",
    "tirx.floor": "floor",
    "tirx.fma": "fma",
    "tirx.nearbyint": "rint",
    "tirx.round": "rint",
    "tirx.sqrt": "sqrt",
    "tirx.trunc": "trunc",
    "llvm.copysign": "copysign",
    "llvm.fabs": "fabs",
    "llvm.floor": "floor",
    "llvm.fma": "fma",
    "llvm.sqrt": "sqrt",
}
# Functions of `plain.cuh`, which have one name for all types.
OVERLOADED: Mapping[str, str] = {"llvm.maximum": "larger_or_nan", "llvm.minimum": "smaller_or_nan"}
BINARY: Mapping[type, str] = {
    tirx.Add: "plus({}, {})",
    tirx.Sub: "minus({}, {})",
    tirx.Mul: "times({}, {})",
    tirx.Max: "larger({}, {})",
    tirx.Min: "smaller({}, {})",
    tirx.Div: "{} / {}",
    tirx.Mod: "{} % {}",
    tirx.FloorDiv: "floor_quotient({}, {})",
    tirx.FloorMod: "floor_remainder({}, {})",
    tirx.LShift: "shifted_left({}, {})",
    tirx.RShift: "shifted_right({}, {})",
    tirx.BitwiseAnd: "{} & {}",
    tirx.BitwiseOr: "{} | {}",
    tirx.BitwiseXor: "{} ^ {}",
    tirx.EQ: "{} == {}",
    tirx.NE: "{} != {}",
    tirx.LT: "{} < {}",
    tirx.LE: "{} <= {}",
    tirx.GT: "{} > {}",
    tirx.GE: "{} >= {}",
    tirx.And: "{} && {}",
    tirx.Or: "{} || {}",
}
REINTERPRETED: Mapping[tuple[str, str], str] = {
    ("int32", "float32"): "__int_as_float",
    ("float32", "int32"): "__float_as_int",
    ("int64", "float64"): "__longlong_as_double",
    ("float64", "int64"): "__double_as_longlong",
}


def constant(value: float, dtype: str) -> str:
    """Returns a number as a C++ constant of exactly the type `dtype`."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype.startswith("float"):
        if math.isfinite(value):
            return value.hex() + ("f" if dtype == "float32" else "")
        bits = int(np.float32(value).view(np.uint32))
        return f"static_cast<{type_name(dtype)}>(__int_as_float(static_cast<i32>({bits:#x}u)))"
    if value == -(1 << 63):  # C++ has no literal for it
        return f"{type_name(dtype)}(-9223372036854775807 - 1)"
    return f"{type_name(dtype)}({value}{'u' if value >= 1 << 63 else ''})"


def type_name(dtype: str) -> str:
    """Returns the C++ name of a type. Raises `Unsupported` if GPU kernels cannot use it."""
    if dtype not in TYPES:
        raise Unsupported(f"GPU code generation does not support the type {dtype}")
    return TYPES[dtype]
