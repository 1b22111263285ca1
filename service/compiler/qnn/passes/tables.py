"""Make tables: replaces elementwise functions of one 8-bit tensor by a table of 256 values.

GELU as exporters write it (dequantize, divide, erf, add, multiply, quantize) is such a function. So are SiLU, hard
swish, and arithmetic with constants, on integers or on real values between two quantized tensors. A look-up takes one
cycle for four bytes; erf of one real value takes thirty.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change: the mode's own oracle computes the values of the tables. A function that is a single
    operator of the dialect stays as it is; a single operator that a user's dialect defines becomes a table, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import Op

from service.compiler.qnn import graph, ops, oracle
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.formula import all_values
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.defined import definition_of, operand_types
from service.compiler.qnn.ops.real import FUNCTIONS as REAL_FUNCTIONS
from service.compiler.qnn.ops.unary import FUNCTIONS
from service.compiler.qnn.plain import ELEMENTWISE
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

# Operator -> the type attribute of each operand.
_TYPES: dict[str, tuple[str, ...]] = {
    "qnn.quantize": (),
    **dict.fromkeys((f"qnn.real_{name}" for name in REAL_FUNCTIONS), ()),
    **{f"qnn.{name}": ("in_type",) for name in ("dequantize", "requantize", "storage_cast", "table", *FUNCTIONS)},
    **{f"qnn.{name}": ("lhs_type", "rhs_type") for name in ("add", "div", "mul", "squared_difference", "sub")},
}
_STORAGES = ("int8", "uint8")


def make_tables(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with tables, and the names of the tensors that the tables compute."""
    tables = _Tables(graph.main_of(module), mode)
    return (graph.rewrite(module, tables.rewrite) if tables.found else module), tables.made


@dataclass(frozen=True)
class _OfOne:
    """A tensor that is an elementwise function of another tensor.

    Attributes:
        root: the other tensor, 8-bit and of the same shape.
        kind: the root's type.
        values: the result for each stored value of the root, in ascending order of that value.
        steps: the number of operators on the longest path from the root.
    """

    root: relax.Var
    kind: QuantizedType
    values: Array
    steps: int


class _Tables:
    """Finds functions of one 8-bit tensor, and rewrites the model with tables.

    Attributes:
        found: call -> the function that replaces it.
        made: the names of the tensors that tables compute.
    """

    def __init__(self, function: relax.Function, mode: Mode) -> None:
        self.mode = mode
        self.found: dict[relax.Call, _OfOne] = {}
        self.made: list[str] = []
        self._new: dict[relax.Var, relax.Expr] = {}  # old variable -> new expression, for variables that were read
        functions: dict[relax.Var, _OfOne] = {}
        operators: dict[relax.Var, Operation] = {}
        outside = set(graph.results_of(function))  # variables that are read by something other than such a function
        for var, value, operation in graph.operations(function):
            one = self._function(var, value, operation, functions) if isinstance(value, relax.Call) else None
            if one is None:
                outside |= set(graph.variables(value))
                continue
            functions[var] = one
            if operation is not None:
                operators[var] = operation
        for var, one in functions.items():
            is_stored = var in operators and str(var.ty.dtype) in _STORAGES
            if is_stored and var in outside and (one.steps > 1 or definition_of(operators[var].name) is not None):
                self.found[operators[var].call] = one
                self.made.append(str(var.name))

    def _function(
        self, var: relax.Var, call: relax.Call, operation: graph.Found, functions: dict[relax.Var, _OfOne]
    ) -> _OfOne | None:
        """Returns `var` as a function of one 8-bit tensor, or None if it is not such a function."""
        if not isinstance(var.ty, relax.TensorType) or not _is_elementwise(call, operation):
            return None
        read = {arg for arg in call.args if isinstance(arg, relax.Var)}
        known = [functions[arg] for arg in read if arg in functions]
        one = known[0] if known else _root(call, operation, read)
        if one is not None and not all(other.root.same_as(one.root) for other in known):
            return None
        if one is not None and not all(arg in functions or arg.same_as(one.root) for arg in read):
            return None
        if one is None or graph.shape_of(var) != graph.shape_of(one.root):
            return None
        values: oracle.Values = {
            arg: functions[arg].values if arg in functions else all_values(one.kind) for arg in read
        }
        operands = [_one_value(arg) for arg in call.args]
        if any(operand is None for operand in operands):
            return None
        result = np.asarray(oracle.evaluate(graph.with_args(call, operands), operation, self.mode, values))
        steps = 1 + max((functions[arg].steps for arg in read if arg in functions), default=0)
        return _OfOne(one.root, one.kind, result, steps) if result.shape == one.values.shape else None

    def rewrite(
        self, builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        self._new.update((old, new) for old, new in zip(call.args, args, strict=True) if isinstance(old, relax.Var))
        one = self.found.get(call)
        if one is None or operation is None:
            return graph.with_args(call, args)
        return ops.table(self._new[one.root], one.kind, operation.per_tensor("out_type"), one.values.tolist())


def _is_elementwise(call: relax.Call, operation: graph.Found) -> bool:
    if operation is None:
        return isinstance(call.op, Op) and call.op.name in ELEMENTWISE
    if operation.name not in _TYPES and definition_of(operation.name) is None:
        return False
    present = [name for name in ("in_type", "lhs_type", "rhs_type", "out_type") if name in call.attrs.keys()]  # noqa: SIM118
    return all(operation.quantized(name).is_per_tensor for name in present)


def _root(call: relax.Call, operation: graph.Found, read: set[relax.Var]) -> _OfOne | None:
    """Returns the identity function of the only computed operand, or None if that operand is not stored in 8 bits."""
    if operation is None or len(read) != 1:
        return None
    (root,) = read
    index = next(index for index, arg in enumerate(call.args) if root.same_as(arg))
    names = _TYPES.get(operation.name) or operand_types(operation)
    if index >= len(names):
        return None
    kind = operation.quantized(names[index])
    if kind.dtype not in _STORAGES:
        return None
    return _OfOne(root, kind, all_values(kind), 0)


def _one_value(arg: Any) -> Any:
    """If `arg` is a constant whose elements are all equal, returns a single element; for other constants, returns None.
    Returns any other `arg` unchanged.
    """
    value = value_of(arg) if isinstance(arg, relax.Expr) else None
    if value is None:
        return arg
    if value.size == 0 or not (value == value.flat[0]).all():
        return None
    return relax.const(value.reshape(-1)[:1], value.dtype.name)
