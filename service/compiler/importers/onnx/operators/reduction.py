"""Sums, means and products along axes. Sums and means of float32 values are added in the order in which ONNX Runtime
adds them. The other reductions of real values differ from ONNX Runtime's by at most a few units in the last place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import float32, reduced_axes
from service.compiler.importers.real import Real
from service.compiler.qnn import ops
from service.compiler.qnn.ops.real import FOURS, PACKETS, SEQUENTIAL

_INTEGERS = ("int32", "int64")


def reduced(*, mean: bool) -> Callable[[Node], Value]:
    """Returns the converter of ReduceMean or ReduceSum."""

    def convert(node: Node) -> Value:
        if node.dtype(0) != "float32":
            return _reduced_integers(node, mean=mean)
        axes, keepdims = reduced_axes(node)
        if not axes:
            return node.emit(node.expr(0))
        shape = node.shape(0)
        if 0 in shape:
            kept = [1 if axis in axes else dim for axis, dim in enumerate(shape) if keepdims or axis not in axes]
            return np.full(kept, np.nan if mean else 0, np.float32)
        order = _order(node, shape, axes)
        if order is None:
            made = Real(node.emit, node.expr(0))
            if mean:
                return node.emit(made.mean(made.x, axes, keepdims=keepdims))
            return node.emit(made.total(made.x, axes, keepdims=keepdims))
        rows = math.prod(extent for axis, extent in enumerate(shape) if axis not in axes)
        result = node.emit(ops.real_sum(node.expr(0), axes=axes, order=order, rows=rows), "sum")
        if mean:
            count = np.array(math.prod(shape[axis] for axis in axes), np.float32)
            result = node.emit(relax.op.divide(result, relax.const(count)), "mean")
        if keepdims:
            return result
        return node.emit(relax.op.reshape(result, [dim for axis, dim in enumerate(shape) if axis not in axes]))

    return convert


def _order(node: Node, shape: Sequence[int], axes: Collection[int]) -> str | None:
    """Returns the order in which ONNX Runtime adds, or None if that order is not known.

    Adjacent axes that are all reduced, or all kept, count as one axis. If reduced and kept axes then alternate, ONNX
    Runtime may have a fast function (`FastReduceRK`, `FastReduceKR` and `FastReduceKRK` in
    core/providers/cpu/reduction/reduction_ops.h). Otherwise it adds elements one by one.
    """
    if 0 in shape:
        return None
    positions = [*range(len(shape))]
    if node.name(0) in node.state.channels_last:
        positions = [0, *positions[2:], 1]
    turns = [
        (reduced, math.prod(shape[axis] for axis in group))
        for reduced, group in itertools.groupby(positions, lambda axis: axis in axes)
    ]
    match turns:
        case [(True, _)] | [(False, _), (True, _)]:
            return PACKETS
        case [(True, _), (False, _)] | [(False, 1), (True, _), (False, _)]:
            return SEQUENTIAL
        case [(False, _), (True, _), (False, columns)]:
            return FOURS if columns > 1 else None
        case [(True, _), (False, _), (True, _)]:
            return None
    return SEQUENTIAL


def _reduced_integers(node: Node, *, mean: bool) -> Value:
    """Returns the sum of int32 or int64 values in their own type, or the mean, rounded towards zero."""
    dtype = node.dtype(0)
    if dtype not in _INTEGERS:
        node.unsupported(f"works on {dtype}; only float32, int32 and int64 can be compiled", node.name(0))
    axes, keepdims = reduced_axes(node)
    if not axes:
        return node.emit(node.expr(0))
    total = node.emit(relax.op.sum(node.expr(0), axis=axes, keepdims=keepdims), "sum")
    if not mean:
        return total
    count = node.literal(np.array(math.prod(node.shape(0)[axis] for axis in axes), dtype))
    return node.emit(relax.op.divide(total, count))


def _sums_of(term: Callable[[Real], relax.Expr], *, logarithm: bool = False) -> Callable[[Node], Value]:
    """Returns the converter of a sum of terms that are computed from each element, or of the sum's logarithm."""

    def convert(node: Node) -> Value:
        if node.dtype(0) in _INTEGERS and not logarithm:
            made = Real(node.emit, node.expr(0))
            axes, keepdims = reduced_axes(node)
            terms = term(made)
            return node.emit(relax.op.sum(terms, axis=axes, keepdims=keepdims) if axes else terms)
        float32(node)
        axes, keepdims = reduced_axes(node)
        made = Real(node.emit, node.expr(0))
        total = term(made)
        if axes:
            total = made(made.total(total, axes, keepdims=keepdims))
        return node.emit(made.in_float64(relax.op.log, total) if logarithm else total)

    return convert


def _square(made: Real) -> relax.Expr:
    return made.apply(relax.op.multiply, made.x, made.x)


def log_sum_exp(node: Node) -> Value:
    """Returns the largest element plus the logarithm of the sum of exp(x - largest), as ONNX Runtime computes it
    (`ReduceAggregatorLogSumExp` in core/providers/cpu/reduction/reduction_ops.h). An infinite largest element is not
    subtracted.
    """
    float32(node)
    axes, keepdims = reduced_axes(node)
    if not axes:
        return node.emit(node.expr(0))
    made = Real(node.emit, node.expr(0))
    largest = made(relax.op.max(made.x, axis=axes, keepdims=True))
    largest = made.apply(relax.op.where, made(relax.op.isinf(largest)), 0.0, largest)
    grown = made(ops.real_function("exp", made.apply(relax.op.subtract, made.x, largest)))
    total = made(made.total(grown, axes))
    result = made.apply(relax.op.add, made(made.in_float64(relax.op.log, total)), largest)
    left = [dim for axis, dim in enumerate(node.shape(0)) if axis not in axes]
    return node.emit(result if keepdims else relax.op.reshape(result, left))


def product(node: Node) -> Value:
    """Returns the product of the elements along some axes. Products of real values are computed in float64 and rounded
    once; those of whole numbers are computed in their own type.
    """
    known = node.all_known()
    axes, keepdims = reduced_axes(node)
    if known is not None and node.is_small(known[:1]):
        data = known[0]
        return node.folded(np.prod(data, axis=tuple(axes), keepdims=keepdims, dtype=data.dtype) if axes else data)
    if not axes:
        return node.emit(node.expr(0))

    def multiplied(x: relax.Expr) -> relax.Call:
        return relax.op.prod(x, axis=axes, keepdims=keepdims)

    if node.dtype(0) in _INTEGERS:
        return node.emit(multiplied(node.expr(0)))
    float32(node)
    return node.emit(Real(node.emit, node.expr(0)).in_float64(multiplied, node.expr(0)))


REDUCTIONS = {
    "ReduceL1": _sums_of(lambda made: made.apply(relax.op.abs, made.x)),
    "ReduceLogSum": _sums_of(lambda made: made.x, logarithm=True),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMean": reduced(mean=True),
    "ReduceProd": product,
    "ReduceSum": reduced(mean=False),
    "ReduceSumSquare": _sums_of(_square),
}
