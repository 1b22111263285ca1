"""Sums and means of float32 values, added in the order in which ONNX Runtime adds them."""

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


def reduced(*, mean: bool) -> Callable[[Node], Value]:
    """Returns the converter of ReduceMean or ReduceSum."""

    def convert(node: Node) -> Value:
        float32(node)
        axes, keepdims = reduced_axes(node)
        if not axes:
            return node.emit(node.expr(0))
        shape = node.shape(0)
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


REDUCTIONS = {"ReduceMean": reduced(mean=True), "ReduceSum": reduced(mean=False)}
