"""Split extremes: the smallest and the largest value of a whole tensor are those of its rows', first.

Where quantization is dynamic, the range of a tensor is found when the model runs. Rows have theirs where they are made,
by the kernel that makes them (`kernels.rows`), and a column of them is left to look at.

Requires: a model of `qnn.*` and plain operators.
Ensures: the same outputs: which value is the smallest does not depend on the order of looking.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import value_of

_EXTREMES = {"relax.max": relax.op.max, "relax.min": relax.op.min}


def split_extremes(module: tvm.IRModule, _mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """`module` with extremes in two steps; and the names of what is reduced so."""
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
        if last not in axes or all(shape[axis] == 1 for axis in axes - {last}):
            return graph.with_args(call, args)
        name = str(getattr(args[0], "name", ""))
        rows = graph.emit(builder, extreme(args[0], axis=[last], keepdims=True), f"{name}_rows")
        done.append(name)
        return extreme(rows, axis=sorted(axes), keepdims=True)

    module = graph.rewrite(module, split)
    return module, done
