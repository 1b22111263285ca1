"""Canonicalize: every QNN operator that no kernel took becomes plain Relax, by its formula in the numerics mode.

Requires: a model of `qnn.*` operators and operators that only move elements.
Ensures: no `qnn.*` is left; the outputs are those of the oracle, bit for bit. Float sums stand alone: fused with the
product of an operator before them, LLVM would contract the two and round once less.
"""

from __future__ import annotations

import operator

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import pointwise

_SUMS = {"relax.add": operator.add, "relax.subtract": operator.sub}


def canonicalize(module: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    """`module` in terms of plain Relax, target-independent."""

    def lower(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if operation is None:
            return _separate(builder, graph.with_args(call, args))
        flat = [part for arg in args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
        return mode.formula(operation).lower(operation, builder, *flat)

    return graph.rewrite(module, lower)


def _separate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    sum_of = _SUMS.get(getattr(call.op, "name", ""))
    if sum_of is None or not str(call.args[0].ty.dtype).startswith("float"):
        return call
    return pointwise(builder, "sum", sum_of, list(call.args), alone=True)
