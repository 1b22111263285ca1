"""Formulas that process the elements of a row in order: positions of the largest elements, and running sums."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax
from tvm.script import tirx as T

from service.compiler.qnn.numerics.formula import OPAQUE
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


class TopPlaces:
    """The formula of `qnn.top_places`."""

    summary = "places of the largest elements; of equal ones, the first"

    def evaluate(self, operation: Operation, keys: Array) -> Array:
        descending = -keys if keys.dtype.kind == "f" else -1 - keys
        return np.argsort(descending, axis=-1, kind="stable")[..., : operation.integer("count")].astype(np.int64)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, keys: relax.Expr) -> relax.Expr:
        shape = [int(dim) for dim in keys.ty.shape]
        rows, count = math.prod(shape[:-1]), operation.integer("count")
        function = builder.add_func(_chosen(rows, shape[-1], count, str(keys.ty.dtype)), "top_places")
        flat = builder.emit(relax.op.reshape(keys, (rows, shape[-1])))
        positions = builder.emit(
            relax.call_tir(function, relax.Tuple([flat]), relax.TensorType([rows, count], "int64"))
        )
        return relax.op.reshape(positions, (*shape[:-1], count))


class RunningSum:
    """The formula of `qnn.running_sum`."""

    summary = "sums of all up to each element, one after the other"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        return np.asarray(np.cumsum(x, operation.integer("axis"), x.dtype))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        shape, axis = [int(dim) for dim in x.ty.shape], operation.integer("axis")
        cut = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
        function = builder.add_func(_added((cut[0], cut[1], cut[2]), str(x.ty.dtype)), "running_sum")
        flat = builder.emit(relax.op.reshape(x, cut))
        sums = builder.emit(relax.call_tir(function, relax.Tuple([flat]), relax.TensorType(cut, str(x.ty.dtype))))
        return relax.op.reshape(sums, shape)


def _added(shape: tuple[int, int, int], dtype: str) -> tvm.tirx.PrimFunc:
    rows, size, columns = shape

    @T.prim_func(private=True, s_tir=True, check_well_formed=False)  # type: ignore[untyped-decorator]
    def running_sum(x_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        x = T.match_buffer(x_, (rows, size, columns), dtype)
        out = T.match_buffer(out_, (rows, size, columns), dtype)
        with T.sblock("root"):  # RewriteDataflowReshape requires one
            total = T.sblock_alloc_buffer((1,), dtype)
            for row in range(rows):
                for column in range(columns):
                    total[0] = T.Cast(dtype, 0)
                    for i in range(size):
                        total[0] = total[0] + x[row, i, column]
                        out[row, i, column] = total[0]

    return running_sum


def _chosen(rows: int, size: int, count: int, dtype: str) -> tvm.tirx.PrimFunc:
    """Takes the largest of the remaining elements, `count` times, and returns their positions."""

    @T.prim_func(private=True, s_tir=True, check_well_formed=False)  # type: ignore[untyped-decorator]
    def top_places(keys_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        keys = T.match_buffer(keys_, (rows, size), dtype)
        out = T.match_buffer(out_, (rows, count), "int64")
        with T.sblock("root"):  # RewriteDataflowReshape requires one
            left = T.sblock_alloc_buffer((size,), "int32")
            best = T.sblock_alloc_buffer((1,), "int32")
            for row in range(rows):
                for i in range(size):
                    left[i] = 1
                for place in range(count):
                    best[0] = -1
                    for i in range(size):
                        if left[i] == 1:
                            if best[0] < 0:
                                best[0] = i
                            else:
                                if keys[row, i] > keys[row, best[0]]:
                                    best[0] = i
                    out[row, place] = T.Cast("int64", best[0])
                    left[best[0]] = 0

    return top_places
