"""The formula that counts the values which an operator is about to store.

It rounds to the nearest code, halves to the even one, in all modes. A mode may round halves to the other code, so a
value exactly between the last code and the next one may be counted as clipped although it was rounded down.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import tirx as T

from service.compiler.qnn.numerics.formula import OPAQUE
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.counting import has_stored_operand
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array
from service.core.models.ranges import (
    ABOVE,
    BELOW,
    BINS,
    HEAD,
    INSIDE,
    LARGEST,
    LENGTH,
    MOST_CODE,
    SMALLEST,
    StoredRange,
)

_INFINITY = int(np.float64(np.inf).view(np.int64))


def range_of(tensor: str, out_type: QuantizedType) -> StoredRange:
    """Returns the range of the values that `out_type` stores."""
    return StoredRange(tensor, out_type.scale, out_type.zero_point, out_type.min, out_type.max)


class ValueCounts:
    """The formula of `qnn.value_counts`. NaN counts as 0, and codes are clamped to `ranges.MOST_CODE`."""

    summary = "counts of z + round_even(x * (s_in / s)), in float64, before it is clamped"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        ratios, points = _constants(operation)
        stored = range_of("", operation.per_tensor("out_type"))
        shape = _channels_last(x.shape, operation)
        values = x.reshape(shape)
        if has_stored_operand(operation):
            values = values.astype(np.int64) - points.reshape(1, -1, 1)
        steps = values.astype(np.float64) * ratios.reshape(1, -1, 1)
        steps = np.clip(np.where(np.isnan(steps), 0, steps), -MOST_CODE, MOST_CODE)
        codes = np.rint(steps).astype(np.int64) + stored.zero_point
        counts = np.zeros(LENGTH, np.int64)
        counts[BELOW], counts[ABOVE] = (codes < stored.low).sum(), (codes > stored.high).sum()
        counts[SMALLEST], counts[LARGEST] = codes.min(initial=MOST_CODE), codes.max(initial=-MOST_CODE)
        bins = np.clip((codes - stored.low) // stored.bin_codes + INSIDE, 0, BINS - 1)
        counts[HEAD:] = np.bincount(bins.reshape(-1), minlength=BINS)
        return counts

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        ratios, points = _constants(operation)
        shape = _channels_last(tuple(int(dim) for dim in x.ty.shape), operation)
        stored = range_of("", operation.per_tensor("out_type"))
        function = builder.add_func(_count_function(shape, str(x.ty.dtype), stored), "value_counts")
        flat = builder.emit(relax.op.reshape(x, shape))
        operands = relax.Tuple([flat, relax.const(ratios, "float64"), relax.const(points, "int64")])
        return relax.call_tir(function, operands, relax.TensorType([LENGTH], "int64"))


def _constants(operation: Operation) -> tuple[Array, Array]:
    """Returns, for each channel of the operand, the factor from its steps to the result's, and its zero point."""
    out_scale = operation.per_tensor("out_type").scale
    if not has_stored_operand(operation):
        return np.array([1 / out_scale]), np.zeros(1, np.int64)
    in_type = operation.quantized("in_type")
    return np.array(in_type.scales, np.float64) / out_scale, np.array(in_type.zero_points, np.int64)


def _channels_last(shape: tuple[int, ...], operation: Operation) -> tuple[int, int, int]:
    """Returns the sizes of the operand before, along, and after the axis of its channels."""
    axis = operation.quantized("in_type").axis if has_stored_operand(operation) else None
    if axis is None:
        return math.prod(shape), 1, 1
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _count_function(shape: tuple[int, int, int], dtype: str, stored: StoredRange) -> tvm.tirx.PrimFunc:
    outer, channels, inner = shape
    low, high, point, width = stored.low, stored.high, stored.zero_point, stored.bin_codes
    is_real = dtype == "float32"

    @T.prim_func(private=True, s_tir=True, check_well_formed=False)  # type: ignore[untyped-decorator]
    def value_counts(x_: T.handle, ratios_: T.handle, points_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "op_pattern": OPAQUE, "tirx.noalias": True})
        x = T.match_buffer(x_, (outer, channels, inner), dtype)
        ratios = T.match_buffer(ratios_, (channels,), "float64")
        points = T.match_buffer(points_, (channels,), "int64")
        out = T.match_buffer(out_, (LENGTH,), "int64")
        with T.sblock("root"):  # RewriteDataflowReshape requires one
            step = T.sblock_alloc_buffer((1,), "float64")
            code = T.sblock_alloc_buffer((1,), "int64")
            bin_ = T.sblock_alloc_buffer((1,), "int64")
            for i in range(LENGTH):
                out[i] = T.int64(0)
            out[SMALLEST] = T.int64(MOST_CODE)
            out[LARGEST] = T.int64(-MOST_CODE)
            for i, c, k in T.grid(outer, channels, inner):
                step[0] = _as_float64(x[i, c, k], points[c], is_real) * ratios[c]
                step[0] = T.Select(_is_nan(step[0]), T.float64(0), step[0])
                step[0] = T.max(T.min(step[0], T.float64(MOST_CODE)), T.float64(-MOST_CODE))
                code[0] = T.Cast("int64", T.nearbyint(step[0])) + T.int64(point)
                out[BELOW] = out[BELOW] + T.Cast("int64", code[0] < T.int64(low))
                out[ABOVE] = out[ABOVE] + T.Cast("int64", code[0] > T.int64(high))
                out[SMALLEST] = T.min(out[SMALLEST], code[0])
                out[LARGEST] = T.max(out[LARGEST], code[0])
                bin_[0] = T.floordiv(code[0] - T.int64(low), T.int64(width)) + T.int64(INSIDE)
                bin_[0] = T.max(T.min(bin_[0], T.int64(BINS - 1)), T.int64(0))
                out[T.int64(HEAD) + bin_[0]] = out[T.int64(HEAD) + bin_[0]] + T.int64(1)

    return value_counts


def _as_float64(value: tirx.PrimExpr, point: tirx.PrimExpr, is_real: bool) -> tirx.PrimExpr:
    """Returns a real value, or the difference between stored integers and their zero point."""
    return value.astype("float64") if is_real else (value.astype("int64") - point).astype("float64")


def _is_nan(value: tirx.PrimExpr) -> tirx.PrimExpr:
    """Tests the bits for NaN, because LLVM miscompiles `tirx.isnan` on vectors (`canonicalize`)."""
    magnitude = tirx.reinterpret("int64", value) & tirx.const(np.iinfo(np.int64).max, "int64")
    return magnitude > tirx.const(_INFINITY, "int64")


FORMULAS = {"value_counts": ValueCounts()}
