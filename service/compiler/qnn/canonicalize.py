"""Canonicalize: replaces every QNN operator that no kernel computes by plain Relax, using its formula in the numerics
mode.

Requires: a model of `qnn.*` operators and operators that only move elements.
Ensures: no `qnn.*` operator is left; the outputs are those of the oracle, bit for bit.

- Each float sum is a separate function. If a sum were fused with the product that it adds, LLVM would contract the two
  to a fused multiply-add, which rounds once instead of twice.
- A value that is converted to float64 only for a sum is converted inside the sum.
- A tensor of float16 or bfloat16 becomes one of float32 with the same values (`numerics.scaling.halves`). Inputs and
  outputs of float16 become their bits, in uint16.
- The argmax of an operator returns the first occurrence, even if all elements are the smallest value of their type.
  TVM's own argmax returns no position in that case.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import OPAQUE, Scalar, pointwise
from service.compiler.qnn.numerics.scaling import halves

_PLACES = {"relax.argmax": operator.gt, "relax.argmin": operator.lt}
_INFINITY = {"float32": ("int32", 0x7F800000), "float64": ("int64", 0x7FF0000000000000)}
_SUMS = {"relax.add": operator.add, "relax.subtract": operator.sub}


def canonicalize(module: tvm.IRModule, mode: Mode) -> tvm.IRModule:
    """Returns `module` in terms of plain Relax, independent of the target."""
    widened: dict[relax.Expr, relax.Expr] = {}  # float64 value -> the float32 value that it was converted from

    def lower(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        name = getattr(call.op, "name", "")
        args = [halves.carried(arg) for arg in args]
        if operation is None and halves.involves(call):
            call = builder.normalize(halves.lower_plain(builder, call, args))
            if name not in _PLACES:
                return call
            args = list(call.args)
        if name == "relax.astype" and (str(args[0].ty.dtype), str(call.ty.dtype)) == ("float32", "float64"):
            wide = graph.emit(builder, graph.with_args(call, args))
            widened[wide] = args[0]
            return wide
        if name == "relax.sum" and args[0] in widened:
            return _wide_sum(builder, call, widened[args[0]])
        if name in _PLACES:
            return _place(builder, call, args[0])
        if operation is None:
            return _separate(builder, graph.with_args(call, args))
        flat = [part for arg in args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
        return mode.formula(operation).lower(operation, builder, *flat)

    return graph.rewrite(module, lower, halves.StoredHalves())


def _wide_sum(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr:
    axes, keepdims = call.attrs.axis and [int(axis) for axis in call.attrs.axis], bool(call.attrs.keepdims)

    def total(x: te.Tensor) -> te.Tensor:
        return topi.sum(topi.cast(x, "float64"), axes, keepdims)

    return builder.call_te(total, x, primfunc_name_hint="wide_sum")


def _place(builder: relax.BlockBuilder, call: relax.Call, x: relax.Expr) -> relax.Expr:
    """Emits the position of the first largest (or smallest) element along an axis. NaN counts as more extreme than any
    number, as in NumPy.
    """
    axis, keepdims = int(call.attrs.axis) % len(x.ty.shape), bool(call.attrs.keepdims)
    exceeds, dtype = _PLACES[call.op.name], str(x.ty.dtype)
    kept = [int(dim) for position, dim in enumerate(x.ty.shape) if position != axis]
    shape = [*kept[:axis], *([1] if keepdims else []), *kept[axis:]]

    def better(found: tuple[Scalar, Scalar], other: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        taken = tirx.any(found[0] < 0, exceeds(other[1], found[1]))
        if dtype in _INFINITY:
            taken = tirx.any(taken, tirx.all(_is_nan(other[1], dtype), tirx.Not(_is_nan(found[1], dtype))))
        return tirx.Select(taken, other[0], found[0]), tirx.Select(taken, other[1], found[1])

    def nothing(position: Any, value: Any) -> tuple[Scalar, Scalar]:
        return tirx.const(-1, position), tirx.const(0, value)

    def compute(x: te.Tensor) -> te.Tensor:
        step = te.reduce_axis((0, x.shape[axis]), "step")

        def extreme(*index: Any) -> Scalar:
            at = (*index[:axis], step, *index[axis + keepdims :])
            return te.comm_reducer(better, nothing, "extreme")((tirx.Cast("int64", step.var), x(*at)), axis=step)

        positions, _values = te.compute(shape, extreme, name="extreme")
        return te.compute(shape, lambda *index: positions(*index), name="place")

    return builder.call_te(compute, x, primfunc_name_hint=call.op.name[6:], primfunc_attrs={"op_pattern": OPAQUE})


def _is_nan(value: Scalar, dtype: str) -> Scalar:
    """Tests the bits for NaN, because LLVM miscompiles `tirx.isnan` on vectors."""
    bits, infinity = _INFINITY[dtype]
    return (tirx.reinterpret(bits, value) & tirx.const(np.iinfo(bits).max, bits)) > tirx.const(infinity, bits)


def _separate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    sum_of = _SUMS.get(getattr(call.op, "name", ""))
    if sum_of is None or not str(call.args[0].ty.dtype).startswith("float"):
        return call
    return pointwise(builder, "sum", sum_of, list(call.args), alone=True)
