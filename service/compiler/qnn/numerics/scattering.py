"""The formula that writes rows at positions that the model computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import tirx as T

from service.compiler.qnn.numerics.formula import OPAQUE
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.scattering import ADD, MAX, MIN, MULTIPLY, REPLACE
from service.core.models.arrays import Array

# Reduction -> the combination of a row and its update, in NumPy and in tensor IR.
_COMBINED: dict[str, tuple[Callable[[Array, Array], Array], Callable[[Any, Any], Any]]] = {
    REPLACE: (lambda _old, new: new, lambda _old, new: new),
    ADD: (np.add, lambda old, new: old + new),
    MULTIPLY: (np.multiply, lambda old, new: old * new),
    MAX: (lambda old, new: np.where(old > new, old, new), lambda old, new: tirx.Select(old > new, old, new)),
    MIN: (lambda old, new: np.where(old < new, old, new), lambda old, new: tirx.Select(old < new, old, new)),
}


class ScatterRows:
    """The formula of `qnn.scatter_rows`."""

    summary = "one update after the other, in the operands' own type"

    def evaluate(self, operation: Operation, data: Array, positions: Array, updates: Array) -> Array:
        combined, _ = _COMBINED[str(operation.attr("reduction"))]
        positions, result = np.clip(positions, 0, len(data) - 1), data.copy()
        turns = _turns(positions)
        with np.errstate(all="ignore"):  # real values may be infinite
            for turn in range(turns.max(initial=-1) + 1):
                now = turns == turn
                result[positions[now]] = combined(result[positions[now]], updates[now])
        return result

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        data: relax.Expr,
        positions: relax.Expr,
        updates: relax.Expr,
    ) -> relax.Expr:
        (rows, width), (count,) = ([int(dim) for dim in each.ty.shape] for each in (data, positions))
        _, combined = _COMBINED[str(operation.attr("reduction"))]
        function = builder.add_func(_scatter_function(rows, width, count, str(data.ty.dtype), combined), "scatter_rows")
        return relax.call_tir(function, relax.Tuple([data, positions, updates]), data.ty)


def _turns(positions: Array) -> Array:
    """Returns, for each update, the number of earlier updates of the same position."""
    order = np.argsort(positions, kind="stable")
    ranked = positions[order]
    first = np.searchsorted(ranked, ranked)
    turns = np.empty(len(positions), np.int64)
    turns[order] = np.arange(len(positions)) - first
    return turns


def _scatter_function(
    rows: int, width: int, count: int, dtype: str, combined: Callable[[Any, Any], Any]
) -> tvm.tirx.PrimFunc:
    @T.prim_func(private=True, s_tir=True, check_well_formed=False)  # type: ignore[untyped-decorator]
    def scatter_rows(data_: T.handle, places_: T.handle, updates_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        data = T.match_buffer(data_, (rows, width), dtype)
        places = T.match_buffer(places_, (count,), "int64")
        updates = T.match_buffer(updates_, (count, width), dtype)
        out = T.match_buffer(out_, (rows, width), dtype)
        with T.sblock("root"):  # RewriteDataflowReshape requires one
            row = T.sblock_alloc_buffer((1,), "int64")
            for i, k in T.grid(rows, width):
                out[i, k] = data[i, k]
            for i in range(count):
                row[0] = T.max(T.min(places[i], T.int64(rows - 1)), T.int64(0))
                for k in range(width):
                    out[row[0], k] = combined(out[row[0], k], updates[i, k])

    return scatter_rows
