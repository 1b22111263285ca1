"""Choose kernels: removes the names of LiteRT kernels that the numerics mode has no formula for.

An operation that LiteRT's default delegate does not take carries the name of the kernel that computes it. Modes that
have a formula for that kernel keep the name; the others lose it.

Some of those kernels round by the position of an element. Their operations become `qnn.vector_requantize`, an operator
that no later pass moves, splits or tabulates.

Requires: a model as it was imported.
Ensures: the same outputs, in `mode`.
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
