"""Operators that go through the elements of a row in order."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

_MOST_COMPARISONS = 1 << 32  # of a row: the work is as long as that


def top_places(keys: relax.Expr, *, count: int) -> relax.Call:
    """The places of the largest keys along the last axis, the largest first; of equal ones, the first.

    `[…, N]` int64, or float64 and none of them NaN -> `[…, count]` int64.
    """
    return call_of("top_places", [keys], count=count)


def running_sum(x: relax.Expr, *, axis: int) -> relax.Call:
    """The sums of all elements up to each, along `axis`, of the operand's own type."""
    return call_of("running_sum", [x], axis=axis)


def _running_sum(o: Operation) -> relax.TensorType:
    o.count(1)
    (shape, dtype), axis = o.tensor(0), o.integer("axis")
    o.require(dtype in ("float32", "int32", "int64"), f"adds {dtype}")
    o.require(0 <= axis < len(shape), f"has axis {axis} of the shape {list(shape)}")
    return tensor_type(shape, dtype)


def _top_places(o: Operation) -> relax.TensorType:
    o.count(1)
    (shape, dtype), count = o.tensor(0), o.integer("count")
    o.require(dtype in ("float64", "int64"), f"orders {dtype}, not float64 or int64")
    o.require(bool(shape) and 0 < count <= shape[-1], f"takes {count} of the shape {list(shape)}")
    o.require(count * shape[-1] <= _MOST_COMPARISONS, f"takes {count} of {shape[-1]}, which would take minutes")
    return tensor_type((*shape[:-1], count), "int64")


RULES: dict[str, Rule] = {
    "running_sum": _running_sum,
    "top_places": _top_places,
}
