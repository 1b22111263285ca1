"""Counts of the values that an operator is about to store in a quantized type (`core.models.ranges`)."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType
from service.core.models.ranges import LENGTH


def value_counts(x: relax.Expr, out_type: QuantizedType, in_type: QuantizedType | None = None) -> relax.Call:
    """Counts the codes of the values `x` in `out_type`, before they are clamped to its bounds. Returns
    `[ranges.LENGTH]` int64.

    Args:
        x: accumulators or storage of `in_type`, or float32 real values.
        out_type: per-tensor.
        in_type: may be per-axis; None if `x` contains real values.
    """
    types = {"out_type": out_type} if in_type is None else {"in_type": in_type, "out_type": out_type}
    return call_of("value_counts", [x], **types)


def has_stored_operand(o: Operation) -> bool:
    """Returns true if the operand of `value_counts` contains integers."""
    return "in_type" in o.call.attrs.keys()  # noqa: SIM118 (DictAttrs has no `in`)


def _value_counts(o: Operation) -> relax.TensorType:
    o.count(1)
    o.per_tensor("out_type")
    if has_stored_operand(o):
        in_type = o.quantized("in_type")
        o.require(in_type.blocks is None, "in_type must be per-tensor or per-axis, not in blocks")
        o.stored(0, in_type)
    else:
        _, dtype = o.tensor(0)
        o.require(dtype == "float32", f"real values must be float32, not {dtype}")
    return tensor_type((LENGTH,), "int64")


RULES: dict[str, Rule] = {"value_counts": _value_counts}
