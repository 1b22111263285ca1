"""The operator that writes rows at places that are found when the model runs."""

from __future__ import annotations

from tvm import relax

from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.call import Rule, call_of, tensor_type

REPLACE, ADD, MULTIPLY, MAX, MIN = REDUCTIONS = ("replace", "add", "multiply", "max", "min")
_NUMBERS = ("float32", "int32", "int64", "int8", "uint8")  # of which there are sums


def scatter_rows(data: relax.Expr, places: relax.Expr, updates: relax.Expr, *, reduction: str = REPLACE) -> relax.Call:
    """`[N, K]` data, `[M]` int64, `[M, K]` updates -> the data, of whose rows those at the places are changed in order.

    Places beyond the ends are the ends.

    Args:
        reduction: what becomes of a row and its update, of `REDUCTIONS`. The larger one is the update unless the row is
            greater, the smaller one unless it is less, so that NaN is as in ONNX Runtime.
    """
    return call_of("scatter_rows", [data, places, updates], reduction=reduction)


def _scatter_rows(o: Operation) -> relax.TensorType:
    o.count(3)
    (shape, dtype), (places, place_dtype), (updates, update_dtype) = o.tensor(0, 2), o.tensor(1, 1), o.tensor(2, 2)
    o.require(place_dtype == "int64", f"has places of {place_dtype}")
    o.require(update_dtype == dtype, f"writes {update_dtype} into {dtype}")
    o.require(updates == (*places, shape[1]), f"writes {list(updates)} at {list(places)} into {list(shape)}")
    o.require(shape[0] > 0, "writes into no rows")
    reduction = str(o.attr("reduction"))
    o.require(reduction in REDUCTIONS, f"does not know the reduction {reduction}")
    o.require(reduction == REPLACE or dtype in _NUMBERS, f"has a reduction of {dtype}")
    return tensor_type(shape, dtype)


RULES: dict[str, Rule] = {
    "scatter_rows": _scatter_rows,
}
