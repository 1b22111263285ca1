"""Reads the operators of a matched subgraph, and makes constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from service.compiler.qnn import operation
from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput
from service.core.models.arrays import Array


def attribute_of(call: relax.Expr, name: str) -> Any:
    """Returns an attribute of an operator. Raises `InvalidInput` if it has none of that name."""
    attributes = getattr(call, "attrs", None)
    if attributes is None or name not in attributes.keys():  # noqa: SIM118 (DictAttrs has no `in`)
        raise InvalidInput(f"{getattr(getattr(call, 'op', None), 'name', 'the expression')} has no attribute {name}")
    return attributes[name]


def type_of(call: relax.Expr, name: str) -> QuantizedType:
    """Returns a quantized type that an operator has as an attribute: `in_type`, `out_type`, `weight_type` …"""
    return parse(str(attribute_of(call, name)))


def value_of(expr: relax.Expr) -> Array | None:
    """Returns the value of a constant, or None for anything that is computed."""
    return operation.value_of(expr)


def constant(value: Array, dtype: str | None = None) -> relax.Constant:
    """Returns a constant tensor, converted to `dtype` unless it is None."""
    array = np.ascontiguousarray(value if dtype is None else value.astype(dtype))
    return relax.const(array, array.dtype.name)
