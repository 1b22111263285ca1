"""Moves constants out of the code into one file. The constants become parameters of the entry function.

Artifacts of the same model with the same memory layouts share the file. All instances of a model map the same pages of
the file. Object files stay small (with a `relax.const` of 25 MB, the object file would have 26 MB).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.operation import value_of
from service.core.artifacts.artifact import Slot
from service.core.artifacts.call_plan import ALIGNMENT_BYTES
from service.core.models.arrays import Array


def lift(module: tvm.IRModule) -> tuple[tvm.IRModule, list[Array]]:
    """Makes every constant of `main` an additional parameter. Returns the module and the values in order.

    Equal constants share a parameter.
    """
    function = graph.main_of(module)
    values: dict[tuple[str, tuple[int, ...], bytes], tuple[relax.Var, Array]] = {}
    environment: dict[relax.Var, relax.Expr] = {param: relax.Var(param.name, param.ty) for param in function.params}
    params = list(environment.values())

    def lifted(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([lifted(field) for field in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(lifted(expr.tuple_value), expr.index)
        value = value_of(expr)
        if value is None:
            return environment[expr] if isinstance(expr, relax.Var) else expr
        key = (str(value.dtype), value.shape, value.tobytes())
        if key not in values:
            values[key] = (relax.Var(f"constant_{len(values)}", expr.ty), value)
        return values[key][0]

    bodies = [
        (var, relax.Call(expr.op, [lifted(arg) for arg in expr.args], expr.attrs, expr.ty_args))
        if isinstance(expr, relax.Call)
        else (var, lifted(expr))
        for var, expr in _bound(function, environment)
    ]
    results = [lifted(result) for result in graph.results_of(function)]
    others = {variable: body for variable, body in module.functions.items() if not isinstance(body, relax.Function)}
    builder = relax.BlockBuilder(tvm.IRModule(others))
    with builder.function(
        "main", [*params, *(param for param, _ in values.values())], attrs={"num_input": len(params)}
    ):
        with builder.dataflow():
            for var, expr in bodies:
                builder.emit_normalized(relax.VarBinding(environment[var], builder.normalize(expr)))
            outputs = [builder.emit_output(result) for result in results]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    return builder.get(), [value for _, value in values.values()]


def _bound(function: relax.Function, environment: dict[relax.Var, relax.Expr]) -> list[tuple[relax.Var, relax.Expr]]:
    """Returns the function's bindings with new variables, which are added to `environment`."""
    found = list(graph.bindings(function))
    environment.update({var: relax.DataflowVar(var.name, var.ty) for var, _ in found})
    return found


def write(values: list[Array], path: Path) -> tuple[Slot, ...]:
    """Writes the constants to the file `path`, and returns the slot of each constant in it."""
    layout = []
    with path.open("wb") as file:
        for value in values:
            file.write(b"\0" * (-file.tell() % ALIGNMENT_BYTES))
            layout.append(Slot(str(value.dtype), value.shape, file.tell()))
            file.write(np.ascontiguousarray(value).tobytes())
    return tuple(layout)
