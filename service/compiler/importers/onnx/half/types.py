"""Infers the element types of a graph's tensors, from the definitions of its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from service.compiler.importers.onnx.file.schema import DTYPES
from service.compiler.importers.onnx.file.tensors import SMALL_REALS
from service.compiler.importers.onnx.model import Tensor
from service.compiler.importers.qdq import Operator

FLOAT16, BFLOAT16 = "float16", "bfloat16"
CARRIED = (FLOAT16, BFLOAT16, *SMALL_REALS)  # the types whose values are carried as float32
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}  # NumPy's name of a type -> TensorProto.DataType
TYPE_ATTRIBUTES = ("dtype", "output_dtype", "to")  # attributes whose value is a type's number
Attribute = TypeVar("Attribute")

_BOOL = frozenset(
    {"And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"}
    | {"OptionalHasElement"}
)
_INT64 = frozenset({"ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "SequenceLength", "Shape", "Size"})
_INT32 = frozenset({"ConvInteger", "MatMulInteger"})
# Operators whose results have the type of another input than the first: type -> the input's index.
_OTHER_INPUT = {
    "CastLike": 1,
    "OneHot": 2,
    "Where": 1,
    "com.microsoft.GatherBlockQuantized": 2,
    "com.microsoft.MatMulIntegerToFloat": 2,
}
# Types of the second and later outputs, if they differ from the type of the first output.
_FURTHER: Mapping[str, tuple[str, ...]] = {
    "Dropout": ("bool",),
    "DynamicQuantizeLinear": ("float32", "uint8"),
    "LayerNormalization": ("float32", "float32"),
    "MaxPool": ("int64",),
    "TopK": ("int64",),
    "Unique": ("int64", "int64", "int64"),
}


def widened(value: Attribute) -> Attribute:
    """Returns a constant of a carried type as float32, and any other value unchanged."""
    if not isinstance(value, Tensor) or value.dtype not in CARRIED or value.data is None:
        return value
    return replace(value, dtype="float32", data=np.asarray(value.data, np.float32))


def output_types(operator: Operator, types: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the type of each output of `operator`; "" for a type that is not known.

    Args:
        types: the types of its inputs, by name.
    """
    first = _first_type(operator, [types.get(name, "") for name in operator.inputs])
    further = _FURTHER.get(operator.op_type, (first,) * len(operator.outputs))
    return (first, *further)[: len(operator.outputs)]


def _first_type(operator: Operator, inputs: list[str]) -> str:
    name, attributes = operator.op_type, operator.attributes
    padded = [*inputs, "", "", ""]
    if name in _BOOL:
        return "bool"
    if name in _INT64:
        return "int64"
    if name in _INT32:
        return "int32"
    if name == "Cast":
        return _numbered(attributes.get("to"))
    if name == "ConstantOfShape":
        value = attributes.get("value")
        return value.dtype if isinstance(value, Tensor) else "float32"
    if name == "QuantizeLinear":
        return padded[2] or _numbered(attributes.get("output_dtype")) or "uint8"
    if name == "DequantizeLinear":
        return _numbered(attributes.get("output_dtype")) or padded[1]
    if name == "DynamicQuantizeLinear":
        return "uint8"
    if name in ("EyeLike", "RandomNormalLike", "RandomUniformLike") and "dtype" in attributes:
        return _numbered(attributes["dtype"])
    return padded[_OTHER_INPUT.get(name, 0)]


def _numbered(number: Any) -> str:
    return DTYPES.get(number, "") if isinstance(number, int) else ""
