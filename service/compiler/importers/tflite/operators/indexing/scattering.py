"""Operators that write at positions: SCATTER_ND, DYNAMIC_UPDATE_SLICE and the sums of segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.indexing.gathering import clamped, indices_of, row_places
from service.compiler.importers.tflite.operators.selection import sliced
from service.compiler.qnn import ops
from service.compiler.qnn.ops import scattering
from service.core.models.arrays import Array

_MOST_WRITES = 1 << 22


def scatter_nd(node: Node) -> relax.Expr:
    """Converts SCATTER_ND: adds updates to zeros of a constant shape, at the rows that the indices select (`ScatterNd`
    in reference_ops.h).
    """
    target = tuple(node.integers(2).reshape(-1).tolist())
    indices, updates = node.input(0).shape, node.input(1).shape
    depth = indices[-1] if indices else 0
    node.require(0 < depth <= len(target) and min(target) > 0, f"has indices {list(indices)} for shape {list(target)}")
    rest = target[depth:]
    node.require(updates == (*indices[:-1], *rest), f"has updates {list(updates)} for indices {list(indices)}")
    node.expect_shape(target)
    dtype = node.output.dtype
    node.require(node.input(1).dtype == dtype, f"writes {node.input(1).dtype} into {dtype}")
    count, width, writes = math.prod(target[:depth]), math.prod(rest), math.prod(indices[:-1])
    stored = {"int16": "int32", "bool": "int32"}.get(dtype, dtype)  # types that cannot be added
    zeros = node.emit(relax.op.broadcast_to(relax.const(np.array(0, stored), stored), (count, width)), "zeros")
    at = node.emit(relax.op.reshape(row_places(node, 0, target[:depth]), (writes,)), "places")
    made = _scattered(node, zeros, at, node.expr(1), writes, scattering.ADD, stored)
    return _restored(node, made, target, stored)


def _scattered(
    node: Node, data: relax.Expr, at: relax.Expr, updates: relax.Expr, writes: int, reduction: str, stored: str
) -> relax.Expr:
    """Writes `updates` into rows of `data`, `[N, K]`."""
    if writes > _MOST_WRITES:
        node.unsupported(f"writes {writes} rows; the limit is {_MOST_WRITES}")
    width = int(data.ty.shape.values[1])
    rows = node.emit(relax.op.reshape(updates, (writes, width)), "updates")
    if str(rows.ty.dtype) != stored:
        rows = node.emit(relax.op.astype(rows, stored), "stored")
    places = node.emit(relax.op.astype(at, "int64"), "rows")
    return node.emit(ops.scatter_rows(data, places, rows, reduction=reduction), "written")


def _restored(node: Node, made: relax.Expr, shape: tuple[int, ...], stored: str) -> relax.Expr:
    result = node.emit(relax.op.reshape(made, shape), "shaped")
    if stored == node.output.dtype:
        return result
    if node.output.dtype == "bool":
        zero = relax.const(np.array(0, stored), stored)
        return node.emit(relax.op.logical_not(node.emit(relax.op.equal(result, zero), "off")))
    return node.emit(relax.op.astype(result, node.output.dtype))


def dynamic_update_slice(node: Node) -> relax.Expr:
    """Converts DYNAMIC_UPDATE_SLICE. The start is clamped so that the update is inside of the operand
    (tflite/kernels/dynamic_update_slice.cc).
    """
    shape, update = node.input(0).shape, node.input(1).shape
    fits = len(shape) == len(update) and all(a >= b for a, b in zip(shape, update, strict=True))
    node.require(fits, f"writes {list(update)} into {list(shape)}")
    node.require(node.input(0).dtype == node.input(1).dtype == node.output.dtype, "mixes types")
    node.require(node.input(2).shape == (len(shape),), "has a start whose length is not its operand's rank")
    if not shape or shape == update:
        return node.emit(relax.op.reshape(node.expr(1), shape))
    # Trailing axes that the update fills form rows.
    kept = next(axis for axis in reversed(range(len(shape))) if shape[axis] != update[axis]) + 1
    leading, rows = shape[:kept], update[:kept]
    strides = [*accumulate(reversed(leading[1:]), mul, initial=1)][::-1]
    starts = indices_of(node, 2)
    places = relax.const(_offsets(node, rows, strides))
    base: relax.Expr | None = None
    for axis, stride in enumerate(strides):
        start = node.emit(relax.op.reshape(sliced(node, starts, [axis], [axis + 1], f"cut_{axis}"), ()), f"at_{axis}")
        start = clamped(node, start, leading[axis] - rows[axis] + 1, f"start_{axis}")
        scaled = node.emit(relax.op.multiply(start, relax.const(np.array(stride, np.int32))), f"scaled_{axis}")
        base = scaled if base is None else node.emit(relax.op.add(base, scaled), f"base_{axis}")
    at = node.emit(relax.op.add(places, base), "places")
    writes, width = math.prod(rows), math.prod(shape[kept:])
    data = node.emit(relax.op.reshape(node.expr(0), (math.prod(leading), width)), "data")
    made = _scattered(node, data, at, node.expr(1), writes, scattering.REPLACE, node.output.dtype)
    return node.emit(relax.op.reshape(made, shape))


def _offsets(node: Node, rows: tuple[int, ...], strides: list[int]) -> Array:
    """Returns the position of each row of the update, if the update begins at the origin."""
    if math.prod(rows) > _MOST_WRITES:
        node.unsupported(f"writes {math.prod(rows)} rows; the limit is {_MOST_WRITES}")
    node.reserve(4 * math.prod(rows))
    places = sum(
        np.arange(size).reshape(-1, *[1] * (len(rows) - axis - 1)) * stride
        for axis, (size, stride) in enumerate(zip(rows, strides, strict=True))
    )
    return np.asarray(places, np.int32).reshape(-1)


def segment_sum(node: Node) -> relax.Expr:
    """Converts SEGMENT_SUM. The segments of the rows must be constant, because they determine the output's shape."""
    segments = node.integers(1).reshape(-1)
    node.require(len(segments) > 0 and segments[0] == 0, "has segments that do not begin with 0", node.input(1))
    node.require(set(np.diff(segments).tolist()) <= {0, 1}, "has segments that are not in order", node.input(1))
    return _segments(node, int(segments[-1]) + 1, "add")


def unsorted_segment(reduction: str) -> Callable[[Node], relax.Expr]:
    """Returns the converter of UNSORTED_SEGMENT_SUM, _PROD, _MAX or _MIN, with a constant number of segments. Rows of
    negative segments are left out (`EvalType` in tflite/kernels/unsorted_segment.cc).
    """

    def convert(node: Node) -> relax.Expr:
        return _segments(node, node.scalar(2), reduction)

    return convert


def _segments(node: Node, count: int, reduction: str) -> relax.Expr:
    require_one_dtype_of_data(node)
    shape, ids = node.input(0).shape, node.input(1).shape
    node.require(bool(ids) and shape[: len(ids)] == ids, f"has segments {list(ids)} for the data {list(shape)}")
    node.require(count > 0, f"has {count} segments")
    rest, rows, dtype = shape[len(ids) :], math.prod(ids), node.output.dtype
    width = math.prod(rest)
    node.expect_shape((count + 1, width))
    start = np.full((), _neutral(reduction, np.dtype(dtype)), dtype)
    data = node.emit(relax.op.broadcast_to(relax.const(start, dtype), (count + 1, width)), "start")
    places = node.emit(relax.op.reshape(indices_of(node, 1), (rows,)), "places")
    zero, last = (relax.const(np.array(value, np.int32)) for value in (0, count))
    outside = node.emit(relax.op.less(places, zero), "outside")
    at = node.emit(relax.op.where(outside, last, places), "at")  # the last row collects what is left out
    made = _scattered(node, data, at, node.expr(0), rows, reduction, dtype)
    return node.emit(relax.op.reshape(sliced(node, made, [0, 0], [count, width], "inside"), (count, *rest)))


def require_one_dtype_of_data(node: Node) -> None:
    node.require(
        node.input(0).dtype == node.output.dtype, f"reads {node.input(0).dtype}, but writes {node.output.dtype}"
    )


def _neutral(reduction: str, dtype: np.dtype[np.generic]) -> float | int:
    """Returns the value of an empty segment."""
    if reduction in ("add", "multiply"):
        return int(reduction == "multiply")
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return limits.min if reduction == "max" else limits.max  # type: ignore[no-any-return]
