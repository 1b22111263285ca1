"""The oracle: runs a model of QNN operators in NumPy, on wide integers, one operator at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Op

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import Array
from service.compiler.qnn.operation import Operation, value_of
from service.core.errors import UnsupportedOperator


def run(module: tvm.IRModule, mode: Mode, inputs: Sequence[Array]) -> list[Array]:
    """What `module` computes in `mode`: one array for each output, of the dtype the module declares.

    Raises:
        UnsupportedOperator: an operator that neither the mode's table nor `PLAIN` knows.
    """
    function = graph.main_of(module)
    values: dict[relax.Var, Any] = dict(zip(function.params, inputs, strict=True))
    for var, expr, operation in graph.operations(function):
        values[var] = _evaluate(expr, operation, mode, values)
    return [_value(result, values) for result in graph.results_of(function)]


def _evaluate(expr: relax.Expr, operation: Operation | None, mode: Mode, values: dict[relax.Var, Any]) -> Any:
    if not isinstance(expr, relax.Call):
        return _value(expr, values)
    operands = [_value(arg, values) for arg in expr.args]
    if operation is not None:
        flat = [part for operand in operands for part in (operand if isinstance(operand, list) else [operand])]
        return mode.formula(operation).evaluate(operation, *flat)
    name = expr.op.name if isinstance(expr.op, Op) else str(expr.op)
    if name not in PLAIN:
        raise UnsupportedOperator(f"the oracle has no {name}", op=name)
    return PLAIN[name](expr, *operands)


def _value(expr: relax.Expr, values: dict[relax.Var, Any]) -> Any:
    if isinstance(expr, relax.Tuple):
        return [_value(field, values) for field in expr.fields]
    return values[expr] if isinstance(expr, relax.Var) else value_of(expr)


def _pad(call: relax.Call, x: Array) -> Array:
    widths = [int(width) for width in call.attrs.pad_width]
    return np.pad(x, list(zip(widths[::2], widths[1::2], strict=True)), constant_values=float(call.attrs.pad_value))


def _strided_slice(call: relax.Call, x: Array, *_: Any) -> Array:
    axes, begin, end = ([int(value) for value in arg.fields] for arg in call.args[1:4])
    slices = dict(zip(axes, map(slice, begin, end), strict=True))
    return x[tuple(slices.get(axis, slice(None)) for axis in range(x.ndim))]


# Operators that only move elements, so that they mean the same in every mode.
PLAIN: dict[str, Callable[..., Array]] = {
    "relax.reshape": lambda call, x, _shape: x.reshape(graph.shape_of(call)),
    "relax.nn.pad": _pad,
    "relax.permute_dims": lambda call, x: x.transpose([int(axis) for axis in call.attrs.axes]),
    "relax.strided_slice": _strided_slice,
}
