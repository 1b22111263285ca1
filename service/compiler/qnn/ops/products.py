"""Products of two matrices."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType

Shape = tuple[int, ...]


def matmul(lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType) -> relax.Call:
    """`[…, M, K]` and `[…, K, N]` -> int32 sums of products `[…, M, N]`, less both zero points; dimensions before the
    last two broadcast as NumPy's do. Both types are per-tensor."""
    return call_of("matmul", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, accum_dtype="int32")


def real_matmul(lhs: relax.Expr, rhs: relax.Expr, bias: relax.Expr | None = None) -> relax.Call:
    """`[…, M, K]`, `[…, K, N]` and a bias `[N]` of float32 -> `[…, M, N]`; dimensions before the last two broadcast.

    A result is 0, to which the products are added one after the other by fused multiply-adds, plus the bias.
    """
    return call_of("real_matmul", [lhs, rhs] if bias is None else [lhs, rhs, bias], accum_dtype="float32")


def _matmul(o: Operation) -> relax.TensorType:
    o.count(2)
    lhs, rhs = o.stored(0, o.per_tensor("lhs_type")), o.stored(1, o.per_tensor("rhs_type"))
    o.require(str(o.attr("accum_dtype")) == "int32", f"accumulates in {o.attr('accum_dtype')}")
    return tensor_type(_product(o, lhs, rhs), "int32")


def _real_matmul(o: Operation) -> relax.TensorType:
    o.count(2, 3)
    (lhs, lhs_dtype), (rhs, rhs_dtype) = o.tensor(0), o.tensor(1)
    o.require(lhs_dtype == rhs_dtype == "float32", f"multiplies {lhs_dtype} by {rhs_dtype}, not float32")
    o.require(str(o.attr("accum_dtype")) == "float32", f"accumulates in {o.attr('accum_dtype')}")
    shape = _product(o, lhs, rhs)
    if len(o.call.args) == 3:
        o.require(o.tensor(2, rank=1) == (shape[-1:], "float32"), f"has a bias of {o.tensor(2)}")
    return tensor_type(shape, "float32")


def _product(o: Operation, lhs: Shape, rhs: Shape) -> Shape:
    o.require(len(lhs) >= 2 and len(rhs) >= 2, f"multiplies {list(lhs)} by {list(rhs)}, not matrices")
    o.require(lhs[-1] == rhs[-2], f"multiplies rows of {lhs[-1]} by columns of {rhs[-2]}")
    try:
        batch = np.broadcast_shapes(lhs[:-2], rhs[:-2])
    except ValueError:
        o.fail(f"{list(lhs)} and {list(rhs)} do not broadcast")
    return (*batch, lhs[-2], rhs[-1])


RULES: dict[str, Rule] = {
    "matmul": _matmul,
    "real_matmul": _real_matmul,
}
