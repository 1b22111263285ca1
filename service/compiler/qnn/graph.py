"""Walks and rewrites a model's only function.

A model is `main`: one dataflow block of single assignments, as importers emit it. A pass over it is therefore a loop
over bindings, with an environment from old variables to new expressions. No visitor is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import tvm
from tvm import relax

from service.compiler.locating import located
from service.compiler.qnn import ops
from service.compiler.qnn.operation import IllTyped, Operation, value_of

Found = Operation | None
Rewrite = Callable[[relax.BlockBuilder, relax.Call, list[relax.Expr], Found], relax.Expr]


class Values(Protocol):
    """A mapping from variables to the expressions that replace them."""

    def __getitem__(self, var: relax.Var, /) -> relax.Expr: ...


def main_of(module: tvm.IRModule) -> relax.Function:
    return module["main"]


def bindings(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Iterates over the function's bindings in order.

    Raises:
        IllTyped: the function contains something other than plain assignments.
    """
    for block in function.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding):
                raise IllTyped(f"a model must consist of plain assignments, not of {type(binding).__name__}")
            yield binding.var, binding.value


def operations(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Expr, Found]]:
    """Iterates over `bindings`, each with its QNN operation (None for other operators).

    Each operation has a link to the operation that computed its first operand.
    """
    found: dict[relax.Var, Operation] = {}
    for var, value in bindings(function):
        operation = None
        if ops.name_of(value) is not None:
            first = value.args[0] if value.args else None
            operation = Operation(value, found.get(first) if isinstance(first, relax.Var) else None)
            is_passed_on = operation.name == "qnn.simulated_accumulate"  # returns the accumulators, in another type
            if made := operation.producer if is_passed_on else operation:
                found[var] = made
        yield var, value, operation


def results_of(function: relax.Function) -> list[relax.Expr]:
    """Returns the function's results as a list."""
    body = function.body.body
    return list(body.fields) if isinstance(body, relax.Tuple) else [body]


def variables(expr: relax.Expr) -> Iterator[relax.Var]:
    """Iterates over the variables that `expr` reads, once for each read."""
    if isinstance(expr, relax.Var):
        yield expr
        return
    if isinstance(expr, relax.TupleGetItem):
        yield from variables(expr.tuple_value)
        return
    parts = expr.args if isinstance(expr, relax.Call) else expr.fields if isinstance(expr, relax.Tuple) else ()
    for part in parts:
        yield from variables(part)


def uses_of(function: relax.Function) -> Counter[relax.Var]:
    """Counts the reads of each variable, including those by the function's results."""
    read = [value for _, value in bindings(function)] + results_of(function)
    return Counter(var for expr in read for var in variables(expr))


class Boundary:
    """The parameters and outputs of a function that `rewrite` writes. This class keeps those of the old function."""

    def param(self, param: relax.Var) -> relax.Var:
        """Returns the new parameter that takes the place of `param`."""
        return relax.Var(param.name, param.ty)

    def value(self, builder: relax.BlockBuilder, new: relax.Var, param: relax.Var) -> relax.Expr:
        """Returns what takes the place of `param` in the function's body. `new` is the new parameter."""
        return new

    def output(self, builder: relax.BlockBuilder, value: relax.Expr, result: relax.Expr) -> relax.Expr:
        """Returns the new output. `value` takes the place of `result`, an output of the old function."""
        return value


def rewrite(module: tvm.IRModule, rewrite_call: Rewrite, boundary: Boundary | None = None) -> tvm.IRModule:
    """Returns `module` with every call of `main` replaced by what `rewrite_call(builder, call, new_args, operation)`
    emits.

    New values keep the names of the values that they replace, so that a later error can still name the operator.
    """
    function, ends = main_of(module), boundary or Boundary()
    builder = relax.BlockBuilder()
    params = [ends.param(param) for param in function.params]
    environment: dict[relax.Var, relax.Expr] = {}
    with builder.function("main", params):
        with builder.dataflow():
            for param, new in zip(function.params, params, strict=True):
                environment[param] = ends.value(builder, new, param)
            for var, value, operation in operations(function):
                with located(name_of(value), str(var.name)):
                    environment[var] = _rewritten(builder, var, value, operation, environment, rewrite_call)
            outputs = [
                builder.emit_output(ends.output(builder, substitute(result, environment), result))
                for result in results_of(function)
            ]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get()


def _rewritten(
    builder: relax.BlockBuilder,
    var: relax.Var,
    value: relax.Expr,
    operation: Found,
    environment: dict[relax.Var, relax.Expr],
    rewrite_call: Rewrite,
) -> relax.Expr:
    if not isinstance(value, relax.Call):
        return substitute(value, environment)
    args = [substitute(arg, environment) for arg in value.args]
    result = rewrite_call(builder, value, args, operation)
    named = isinstance(result, relax.Var) or value_of(result) is not None
    return result if named else emit(builder, result, var.name)


def substitute(expr: relax.Expr, environment: Values) -> relax.Expr:
    """Returns `expr` with its variables replaced."""
    if isinstance(expr, relax.Var):
        return environment[expr]
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(field, environment) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, environment), expr.index)
    return expr


def name_of(value: relax.Expr) -> str:
    """Returns the operator that a binding calls, as errors name it (`qnn.add`, `reshape`), or "" if it calls none."""
    called = getattr(getattr(value, "op", None), "name", "")
    return str(called).removeprefix("relax.")


def with_args(call: relax.Call, args: list[relax.Expr]) -> relax.Call:
    """Returns `call` with other operands."""
    return relax.Call(call.op, args, call.attrs, call.ty_args)


def emit(builder: relax.BlockBuilder, expr: relax.Expr, name: str = "") -> relax.Var:
    """Binds `expr` and returns its variable.

    Raises:
        IllTyped: type inference rejects the expression.
    """
    with _typing(name):
        return builder.emit(expr, name)


def typed(builder: relax.BlockBuilder, expr: relax.Expr) -> relax.Expr:
    """Returns `expr` with its inferred type.

    Raises:
        IllTyped: as for `emit`.
    """
    with _typing(""):
        return builder.normalize(expr)


@contextmanager
def _typing(name: str) -> Iterator[None]:
    """Translates type errors to IllTyped. For operands that do not fit, TVM's own operators raise a ValueError or
    TypeError, and QNN operators a RuntimeError.
    """
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as exc:
        raise IllTyped(str(exc).strip().splitlines()[-1], op=name or None) from exc


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    return tuple(int(dim) for dim in expr.ty.shape)
