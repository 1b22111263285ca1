"""Arithmetic of two tensors, element by element."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType


def add(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """lhs + rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("add", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def mul(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """lhs * rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("mul", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def _binary(o: Operation) -> relax.TensorType:
    o.count(2)
    lhs = o.stored(0, o.per_tensor("lhs_type"))
    rhs = o.stored(1, o.per_tensor("rhs_type"))
    rank = max(len(lhs), len(rhs))
    pairs = list(zip((1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs, strict=True))
    o.require(all(a == b or 1 in (a, b) for a, b in pairs), f"{list(lhs)} and {list(rhs)} do not broadcast")
    return tensor_type([max(a, b) if 0 not in (a, b) else 0 for a, b in pairs], o.per_tensor("out_type").dtype)


RULES: dict[str, Rule] = {
    "add": _binary,
    "mul": _binary,
}
