"""Products of two computed matrices."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type
from service.compiler.qnn.types import QuantizedType


def matmul(lhs: relax.Expr, rhs: relax.Expr, lhs_type: QuantizedType, rhs_type: QuantizedType) -> relax.Call:
    """`[…, M, K]` and `[…, K, N]` -> int32 sums of products `[…, M, N]`, less both zero points; dimensions before the
    last two broadcast as NumPy's do. Both types are per-tensor."""
    return call_of("matmul", [lhs, rhs], lhs_type=lhs_type, rhs_type=rhs_type, accum_dtype="int32")


def _matmul(o: Operation) -> relax.TensorType:
    o.count(2)
    lhs, rhs = o.stored(0, o.per_tensor("lhs_type")), o.stored(1, o.per_tensor("rhs_type"))
    o.require(len(lhs) >= 2 and len(rhs) >= 2, f"multiplies {list(lhs)} by {list(rhs)}, not matrices")
    o.require(lhs[-1] == rhs[-2], f"multiplies rows of {lhs[-1]} by columns of {rhs[-2]}")
    o.require(str(o.attr("accum_dtype")) == "int32", f"accumulates in {o.attr('accum_dtype')}")
    try:
        batch = np.broadcast_shapes(lhs[:-2], rhs[:-2])
    except ValueError:
        o.fail(f"{list(lhs)} and {list(rhs)} do not broadcast")
    return tensor_type((*batch, lhs[-2], rhs[-1]), "int32")


RULES: dict[str, Rule] = {
    "matmul": _matmul,
}
