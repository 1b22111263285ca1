"""The oracle: evaluates a model of QNN operators in NumPy, on wide integers, one operator at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tvm
from tvm import relax
from tvm.ir import Op

from service.compiler.locating import located
from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.scaling import rounding
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops import name_of
from service.compiler.qnn.plain import PLAIN
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array

Values = dict[relax.Var, Any]


class Observe(Protocol):
    """Receives the operands and results of a model's operators."""

    def __call__(self, name: str, operation: Operation, sample: int, operand: Any, result: Any, ties: int) -> None:
        """
        Args:
            name: the variable that the operator's result is bound to.
            sample: the index of the sample that is computed.
            operand: the operator's first operand.
            result: the operator's result.
            ties: how many of the values that the operator rounded were exactly halfway between two integers.
        """


def run(module: tvm.IRModule, mode: Mode, inputs: Sequence[Array]) -> list[Array]:
    """Evaluates `module` in `mode`: returns one array for each output, of the dtype that the module declares.

    Raises:
        UnsupportedOperator: neither the mode's table nor `PLAIN` contains an operator.
    """
    return run_all(module, mode, [inputs])[0]


def run_all(
    module: tvm.IRModule, mode: Mode, samples: Sequence[Sequence[Array]], observe: Observe | None = None
) -> list[list[Array]]:
    """Calls `run` for each of `samples`, operator by operator, so that values derived from weights are computed only
    once.

    Args:
        observe: called for each QNN operator and sample.
    """
    function = graph.main_of(module)
    states: list[Values] = [dict(zip(function.params, inputs, strict=True)) for inputs in samples]
    found = list(graph.operations(function))
    ends = _last_uses(function, [expr for _, expr, _ in found])
    for index, (var, expr, operation) in enumerate(found):
        for sample, values in enumerate(states):
            with located(graph.name_of(expr), str(var.name)):
                if observe is None or operation is None:
                    values[var] = evaluate(expr, operation, mode, values)
                else:
                    with rounding.watch() as ties:
                        values[var] = evaluate(expr, operation, mode, values)
                    operand = _value(expr.args[0], values)
                    observe(str(var.name), operation, sample, operand, values[var], ties.count)
            for dead in ends.get(index, ()):
                del values[dead]
    return [[_value(result, values) for result in graph.results_of(function)] for values in states]


def run_sequence(
    module: tvm.IRModule, mode: Mode, calls: Sequence[Sequence[Array]], states: Sequence[Array]
) -> list[list[Array]]:
    """Returns the outputs of successive `calls` of a model that keeps state. Each call starts from the state that the
    previous one left.

    Args:
        states: the states before the first call. `module` takes the states after its inputs, and returns the next
            states after its outputs.
    """
    answers = []
    for inputs in calls:
        results = run(module, mode, [*inputs, *states])
        outputs = len(results) - len(states)
        states = results[outputs:]
        answers.append(results[:outputs])
    return answers


def _last_uses(function: relax.Function, exprs: Sequence[relax.Expr]) -> dict[int, list[relax.Var]]:
    """Maps the index of a binding to the variables that nothing after it reads."""
    last: dict[relax.Var, int] = {}
    for position, expr in enumerate([*exprs, *graph.results_of(function)]):
        last.update((var, position) for var in graph.variables(expr))
    ends: dict[int, list[relax.Var]] = {}
    for var, position in last.items():
        if position < len(exprs):
            ends.setdefault(position, []).append(var)
    return ends


def knows(call: relax.Call) -> bool:
    """Returns true if the oracle can evaluate the operator of `call`."""
    name = call.op.name if isinstance(call.op, Op) else str(call.op)
    return name in PLAIN or name_of(call) is not None


def evaluate(expr: relax.Expr, operation: Operation | None, mode: Mode, values: Values) -> Any:
    """Returns the value of one binding. `values` contains the variables that it reads.

    Raises:
        UnsupportedOperator: as for `run`.
    """
    if not isinstance(expr, relax.Call):
        return _value(expr, values)
    operands = [_value(arg, values) for arg in expr.args]
    if operation is not None:
        flat = [part for operand in operands for part in (operand if isinstance(operand, list) else [operand])]
        return mode.formula(operation).evaluate(operation, *flat)
    name = expr.op.name if isinstance(expr.op, Op) else str(expr.op)
    if name not in PLAIN:
        raise UnsupportedOperator(f"the oracle cannot evaluate {name}", op=name)
    return PLAIN[name](expr, *operands)


def _value(expr: relax.Expr, values: Values) -> Any:
    if isinstance(expr, relax.Tuple):
        return [_value(field, values) for field in expr.fields]
    return values[expr] if isinstance(expr, relax.Var) else value_of(expr)
