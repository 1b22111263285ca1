"""Share ranges: if the mode uses one range for several rows, computes this range only once, although the model computes
a range for each row.

Without this pass, every parameter of the quantization (`qnn.dynamic_parameter`) would compute the shared range again.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. A parameter depends only on its range.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.dynamic import Parameter


def share_ranges(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with shared ranges computed before the parameters, and the names of the shared ranges."""
    found: dict[tuple[relax.Expr, str], relax.Var] = {}

    def extreme(builder: relax.BlockBuilder, call: relax.Call, x: relax.Var, largest: bool) -> relax.Var:
        key = x, str(largest)
        if key not in found:
            reduce = relax.op.max if largest else relax.op.min
            axes = [int(axis) for axis in call.attrs["shared"]]
            found[key] = graph.emit(builder, reduce(x, axis=axes, keepdims=True), str(x.name))
        return found[key]

    def share(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        formula = mode.formula(operation) if operation is not None else None
        if operation is None or not isinstance(formula, Parameter) or not formula.joins_rows(operation):
            return graph.with_args(call, args)
        ends = (extreme(builder, call, x, largest) for x, largest in zip(args, (False, True), strict=True))
        return ops.with_operands(call, *ends, shared=[])

    module = graph.rewrite(module, share)
    return module, [str(x.name) for x, _ in found]
