"""Canonicalize: every QNN operator that no kernel took becomes plain Relax, by its formula in the numerics mode.

Requires: a model of `qnn.*` operators and operators that only move elements.
Ensures: no `qnn.*` is left; the outputs are those of the oracle, bit for bit.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode


def canonicalize(module: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    """`module` in terms of plain Relax, target-independent."""

    def lower(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is None:
            return graph.with_args(call, args)
        flat = [part for arg in args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
        return mode.formula(operation).lower(operation, builder, *flat)

    return graph.rewrite(module, lower)
