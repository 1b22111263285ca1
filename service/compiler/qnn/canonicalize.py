"""Canonicalize: every QNN operator that no kernel took becomes plain Relax, by its formula in the numerics mode.

Requires: a model of `qnn.*` operators and operators that only move elements.
Ensures: no `qnn.*` is left; the outputs are those of the oracle, bit for bit. Float sums stand alone: fused with the
product of an operator before them, LLVM would contract the two and round once less. What is only widened to be summed
up is widened there.
"""

from __future__ import annotations

import operator

import tvm
from tvm import relax, te, topi

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import pointwise

_SUMS = {"relax.add": operator.add, "relax.subtract": operator.sub}


def canonicalize(module: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    """`module` in terms of plain Relax, target-independent."""
    widened: dict[relax.Expr, relax.Expr] = {}  # float64 values -> those of float32 that they are

    def lower(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        name = getattr(call.op, "name", "")
        if name == "relax.astype" and (str(args[0].ty.dtype), str(call.ty.dtype)) == ("float32", "float64"):
            wide = graph.emit(builder, graph.with_args(call, args))
            widened[wide] = args[0]
            return wide
        if name == "relax.sum" and args[0] in widened:
            return _wide_sum(builder, call, widened[args[0]])
        if operation is None:
            return _separate(builder, graph.with_args(call, args))
        flat = [part for arg in args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
        return mode.formula(operation).lower(operation, builder, *flat)

    return graph.rewrite(module, lower)


def _wide_sum(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr:
    axes, keepdims = call.attrs.axis and [int(axis) for axis in call.attrs.axis], bool(call.attrs.keepdims)

    def total(x: te.Tensor) -> te.Tensor:
        return topi.sum(topi.cast(x, "float64"), axes, keepdims)

    return builder.call_te(total, x, primfunc_name_hint="wide_sum")


def _separate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    sum_of = _SUMS.get(getattr(call.op, "name", ""))
    if sum_of is None or not str(call.args[0].ty.dtype).startswith("float"):
        return call
    return pointwise(builder, "sum", sum_of, list(call.args), alone=True)
