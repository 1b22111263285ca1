"""Choose kernels: removes the names of those LiteRT kernels for which the numerics mode has no formula.

If LiteRT's default delegate does not compute an operation, the operation has an attribute with the name of the LiteRT
kernel that does. Modes that have a formula for that kernel keep the name; other modes lose it.

Some of those kernels round differently depending on an element's position. Operations that such a kernel computes
become `qnn.vector_requantize`. No later pass moves or splits that operator or replaces it by a table.

Requires: a model as an importer returns it.
Ensures: the outputs in `mode` do not change.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.ops.builtin import vectorized, without_builtin


def choose_kernels(module: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    """Returns `module` without the kernel names that `mode` has no formula for."""

    def choose(
        _builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        call = graph.with_args(call, args)
        if operation is None or operation.builtin is None:
            return call
        return vectorized(call) if mode.has_kernel(operation) else without_builtin(call)

    return graph.rewrite(module, choose)
