"""The operator that writes rows at positions that are computed while the model runs."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

REPLACE, ADD, MULTIPLY, MAX, MIN = REDUCTIONS = ("replace", "add", "multiply", "max", "min")
_NUMBERS = ("float32", "int32", "int64", "int8", "uint8")  # types that can be added and compared


def scatter_rows(
    data: relax.Expr, positions: relax.Expr, updates: relax.Expr, *, reduction: str = REPLACE
) -> relax.Call:
    """Updates rows of data, one after the other: `[N, K]` data, `[M]` int64 positions, `[M, K]` updates -> `[N, K]`.

    Positions beyond the ends are clamped to the ends.

    Args:
        reduction: how a row and its update are combined, one of `REDUCTIONS`. The maximum is the update unless the row
            is greater, and the minimum is the update unless the row is less, so that NaN is treated as in ONNX Runtime.
    """
    return call_of("scatter_rows", [data, positions, updates], reduction=reduction)


def _scatter_rows(o: Operation) -> relax.TensorType:
    o.count(3)
    (shape, dtype), (positions, place_dtype), (updates, update_dtype) = o.tensor(0, 2), o.tensor(1, 1), o.tensor(2, 2)
    o.require(place_dtype == "int64", f"positions must be int64, not {place_dtype}")
    o.require(update_dtype == dtype, f"cannot write {update_dtype} into {dtype}")
    o.require(
        updates == (*positions, shape[1]), f"updates {list(updates)} at {list(positions)} do not fit {list(shape)}"
    )
    o.require(shape[0] > 0, "the data has no rows")
    reduction = str(o.attr("reduction"))
    o.require(reduction in REDUCTIONS, f"unknown reduction {reduction}")
    o.require(reduction == REPLACE or dtype in _NUMBERS, f"reduction {reduction} is not defined for {dtype}")
    return tensor_type(shape, dtype)


RULES: dict[str, Rule] = {
    "scatter_rows": _scatter_rows,
}
