"""Split extremes: finds the smallest and the largest value of a whole tensor from the smallest and largest values of
its rows.

Dynamic quantization determines the range of a tensor while the model runs. The kernel that computes a row also finds
the row's extremes (`kernels.rows`), which gives a column of extremes. The column is reshaped to one row. A second such
kernel computes the range of that row, and everything that is computed from the range.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change: the smallest value does not depend on the order of comparison.
"""

from __future__ import annotations

import math

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import value_of

_EXTREMES = {"relax.max": relax.op.max, "relax.min": relax.op.min}


def split_extremes(module: tvm.IRModule, _mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with extremes in two steps, and the names of the tensors that are reduced in this way."""
    done: list[str] = []

    def split(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], _operation: graph.Found
    ) -> relax.Expr:
        extreme = _EXTREMES.get(getattr(call.op, "name", ""))
        if extreme is None or not call.attrs.keepdims or value_of(args[0]) is not None:
            return graph.with_args(call, args)
        shape = graph.shape_of(args[0])
        axes = {int(axis) % len(shape) for axis in call.attrs.axis}
        last = len(shape) - 1
        column = shape[last:] == (1,)
        if not (column or last in axes) or all(shape[axis] == 1 for axis in axes - {last}):
            return graph.with_args(call, args)
        rows, name = args[0], str(getattr(args[0], "name", ""))
        if not column:
            rows = graph.emit(builder, extreme(rows, axis=[last], keepdims=True), f"{name}_rows")
        done.append(name)
        outer = [axis for axis in range(last) if axis not in axes and shape[axis] > 1]
        inner = [axis for axis in axes if shape[axis] > 1 and axis != last]
        if outer and max(outer) > min(inner):
            return extreme(rows, axis=sorted(axes), keepdims=True)
        own = [1 if axis in axes else extent for axis, extent in enumerate(shape[:last])]
        row = relax.op.reshape(rows, [*own, math.prod(shape[axis] for axis in inner)])
        return extreme(graph.emit(builder, row, f"{name}_row"), axis=[last], keepdims=True)

    module = graph.rewrite(module, split)
    return module, done
