"""Builds and recognizes calls of QNN operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Op

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType

PREFIX = "relax.qnn."

# Returns the type of a call's result; raises `IllTyped` if the operands do not fit together.
Rule = Callable[[Operation], relax.TensorType]


def call_of(name: str, args: Sequence[relax.Expr], **attrs: Any) -> relax.Call:
    """Builds a call of `relax.qnn.<name>`. Its attributes have the types that TVM can print and parse."""
    return relax.Call(
        Op.get(PREFIX + name),
        list(args),
        tvm.ir.make_node("ir.DictAttrs", **{key: _plain(value) for key, value in attrs.items()}),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, QuantizedType):
        return str(value)
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tvm.ir.Node | tvm.runtime.Object) and not hasattr(value, "__iter__"):
        return value
    return [_plain(item) for item in value]


def with_operands(call: relax.Call, *args: relax.Expr, **attrs: Any) -> relax.Call:
    """Returns `call` with other operands and some attributes changed."""
    return call_of(name_of(call) or "", args, **{**dict(call.attrs.items()), **attrs})


def name_of(expr: relax.Expr) -> str | None:
    """Returns `conv2d` for a call of `relax.qnn.conv2d`, and None for anything else."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, Op) and expr.op.name.startswith(PREFIX):
        return str(expr.op.name[len(PREFIX) :])
    return None


def tensor_type(shape: Sequence[int], dtype: str) -> relax.TensorType:
    """Returns the type of a tensor of static `shape`."""
    return relax.TensorType(list(shape), dtype)


def same_storage(o: Operation) -> str:
    """Returns the storage of `out_type`, which must be that of `in_type`."""
    in_type, out_type = o.quantized("in_type"), o.per_tensor("out_type")
    o.require(in_type.dtype == out_type.dtype, f"reads {in_type.dtype}, but writes {out_type.dtype}")
    return out_type.dtype
