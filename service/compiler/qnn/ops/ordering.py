"""Operators that process the elements of a row in order."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

_MOST_COMPARISONS = 1 << 32  # comparisons for each row, limited to bound the running time


def top_places(keys: relax.Expr, *, count: int) -> relax.Call:
    """Returns the positions of the largest keys along the last axis, largest first. Of equal keys, the first one comes
    first.

    `[…, N]` int64, or float64 without NaN -> `[…, count]` int64.
    """
    return call_of("top_places", [keys], count=count)


def running_sum(x: relax.Expr, *, axis: int) -> relax.Call:
    """Returns the sum of all elements up to each one along `axis`, in the operand's own type."""
    return call_of("running_sum", [x], axis=axis)


def _running_sum(o: Operation) -> relax.TensorType:
    o.count(1)
    (shape, dtype), axis = o.tensor(0), o.integer("axis")
    o.require(dtype in ("float32", "float64", "int32", "int64"), f"cannot add {dtype}")
    o.require(0 <= axis < len(shape), f"axis {axis} is outside the shape {list(shape)}")
    return tensor_type(shape, dtype)


def _top_places(o: Operation) -> relax.TensorType:
    o.count(1)
    (shape, dtype), count = o.tensor(0), o.integer("count")
    o.require(dtype in ("float64", "int64"), f"keys must be float64 or int64, not {dtype}")
    o.require(bool(shape) and 0 < count <= shape[-1], f"cannot take {count} of the last axis of {list(shape)}")
    o.require(count * shape[-1] <= _MOST_COMPARISONS, f"taking {count} of {shape[-1]} would take minutes")
    return tensor_type((*shape[:-1], count), "int64")


RULES: dict[str, Rule] = {
    "running_sum": _running_sum,
    "top_places": _top_places,
}
