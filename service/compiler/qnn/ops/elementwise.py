"""Arithmetic of two tensors, element by element."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType


def add(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Returns lhs + rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("add", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def mul(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Returns lhs * rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("mul", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def div(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Returns lhs / rhs in real values, broadcasting as NumPy does; all types per-tensor, stored as uint8 or int8."""
    return call_of("div", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def sub(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Returns lhs - rhs in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("sub", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def squared_difference(
    lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Returns (lhs - rhs) ** 2 in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("squared_difference", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def prelu(
    x: relax.Expr, alpha: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType, out_type: QuantizedType
) -> relax.Call:
    """Returns x if x >= 0, else x * alpha, in real values, broadcasting as NumPy does; all types per-tensor."""
    return call_of("prelu", [x, alpha], lhs_type=lhs_type, rhs_type=rhs_type, out_type=out_type)


def compare(
    relation: str, lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType
) -> relax.Call:
    """Compares real values by a relation of `RELATIONS` and returns bool, broadcasting as NumPy does."""
    return call_of(relation, [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type)


RELATIONS = ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal")


def _binary(o: Operation) -> relax.TensorType:
    return tensor_type(_broadcast(o), o.per_tensor("out_type").dtype)


def _div(o: Operation) -> relax.TensorType:
    storages = {o.per_tensor(name).dtype for name in ("lhs_type", "rhs_type", "out_type")}
    is_allowed = storages in ({"uint8"}, {"int8"})
    o.require(is_allowed, f"types must be uint8 or int8, not {' and '.join(sorted(storages))}")
    return _binary(o)


def _compare(o: Operation) -> relax.TensorType:
    return tensor_type(_broadcast(o), "bool")


def _broadcast(o: Operation) -> list[int]:
    """Returns the shape of the result."""
    o.count(2)
    lhs = o.stored(0, o.per_tensor("lhs_type"))
    rhs = o.stored(1, o.per_tensor("rhs_type"))
    rank = max(len(lhs), len(rhs))
    pairs = list(zip((1,) * (rank - len(lhs)) + lhs, (1,) * (rank - len(rhs)) + rhs, strict=True))
    o.require(all(a == b or 1 in (a, b) for a, b in pairs), f"{list(lhs)} and {list(rhs)} do not broadcast")
    return [max(a, b) if 0 not in (a, b) else 0 for a, b in pairs]


RULES: dict[str, Rule] = {
    "add": _binary,
    "div": _div,
    "mul": _binary,
    "prelu": _binary,
    "squared_difference": _binary,
    "sub": _binary,
    **dict.fromkeys(RELATIONS, _compare),
}
