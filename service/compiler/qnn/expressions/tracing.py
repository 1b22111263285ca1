"""Expressions: what a formula computes, as values over the scalar operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from service.compiler.qnn.expressions.formula import InvalidFormula, Scalar, not_given, scalar
from service.compiler.qnn.expressions.ops import Ops, Value
from service.core.models.arrays import Array

_MOST_STEPS = 4096
_MOST_EXPANDED = 10_000  # operations; compiling takes about 0.3 ms for each


@dataclass(frozen=True)
class Expression:
    """A traced formula.

    Attributes:
        inputs: the operands, in order.
        result: the value that the formula returns.
        steps: all values that the result depends on, operands before their users.
        shared: the `id` of each value that is read more than once.
    """

    inputs: tuple[Scalar, ...]
    result: Scalar
    steps: tuple[Scalar, ...]
    shared: frozenset[int]

    @property
    def dtype(self) -> str:
        return self.result.dtype

    @cached_property
    def is_long(self) -> bool:
        """True if TVM needs statements to compile the formula in a reasonable time.

        TVM 0.27 replaces variables by their values in order to simplify an expression. The time that this takes grows
        with the number of operations if every value were computed again for each reader.
        """
        made = self.express(cast(Ops, _Sizes()), [_Size(1)] * len(self.inputs))
        return bool(made.operations > _MOST_EXPANDED)

    def express(self, ops: Ops, operands: Sequence[Value]) -> Value:
        """Returns the result for `operands`. Values that are used more than once are computed once (`Ops.keep`)."""
        # Scalars are found by identity, because `==` between two of them is an operation of the formula.
        values = {id(each): value for each, value in zip(self.inputs, operands, strict=True)}
        for step in self.steps:
            if id(step) not in values:
                values[id(step)] = step.compute(ops, *(values[id(each)] for each in step.operands))
            if id(step) in self.shared:
                values[id(step)] = ops.keep(values[id(step)], step.dtype)
        return values[id(self.result)]


class _Size:
    """A value of which only the number of operations is known."""

    def __init__(self, operations: int) -> None:
        self.operations = operations

    def _with(self, other: _Size) -> _Size:
        return _Size(1 + self.operations + other.operations)

    __add__ = __sub__ = __mul__ = __truediv__ = __lshift__ = __rshift__ = __and__ = __xor__ = __or__ = _with
    __lt__ = __gt__ = __le__ = __ge__ = _with


class _Sizes:
    """Implements `Ops` for `_Size`."""

    def keep(self, x: _Size, dtype: str = "int32") -> _Size:
        return x

    def __getattr__(self, name: str) -> Callable[..., _Size]:
        return lambda *operands, **_: _Size(1 + sum(each.operations for each in operands if isinstance(each, _Size)))


def trace(formula: Callable[..., Any], dtypes: Sequence[str], *, result: str) -> Expression:
    """Calls `formula` with one value of each of `dtypes`, and returns what it computes.

    Args:
        result: the type that the formula must return.

    Raises:
        InvalidFormula: the formula returns something else, or does what cannot be traced.
    """
    inputs = tuple(Scalar(not_given, (), dtype) for dtype in dtypes)
    made = formula(*inputs)
    if isinstance(made, int | float):
        made = scalar(made, result)
    if not isinstance(made, Scalar) or made.dtype != result:
        kind = made.dtype if isinstance(made, Scalar) else type(made).__name__
        raise InvalidFormula(f"the formula must return {result}, not {kind}")
    steps = _ordered(made)
    reads = Counter(id(each) for step in steps for each in step.operands)
    computed = {id(step) for step in steps if step.dtype != "bool" and (step.operands or step.compute is not_given)}
    return Expression(inputs, made, steps, frozenset(each for each, count in reads.items() if count > 1) & computed)


def by_channel(expressions: Sequence[Expression]) -> tuple[Expression, tuple[Array, ...]]:
    """Returns one expression for expressions of several channels that differ only in constants. These constants are
    further operands, for which the second result has one value for each channel.

    Raises:
        InvalidFormula: the expressions consist of different operations.
    """
    first, *rest = expressions
    if any(_operations(each) != _operations(first) for each in rest):
        raise InvalidFormula("the formula has other operations for some channels: write where(condition, a, b), not if")
    numbers = [
        (step, [each.steps[index].number for each in expressions])
        for index, step in enumerate(first.steps)
        if step.number is not None
    ]
    varying = [(step, values) for step, values in numbers if len(set(values)) > 1]
    arrays = tuple(np.array(values, step.dtype) for step, values in varying)
    return replace(first, inputs=(*first.inputs, *(step for step, _ in varying))), arrays


def _operations(expression: Expression) -> list[tuple[Any, str, tuple[int, ...]]]:
    """Returns each step's function, type, and the places of its operands, which are the same for equal formulas."""
    places = {id(step): place for place, step in enumerate(expression.steps)}
    return [
        (step.compute.__code__, step.dtype, tuple(places[id(each)] for each in step.operands))
        for step in expression.steps
    ]


def _ordered(result: Scalar) -> tuple[Scalar, ...]:
    """Returns the values that `result` depends on, in order."""
    steps: dict[int, Scalar] = {}
    waiting = [(result, False)]
    while waiting:
        step, is_ready = waiting.pop()
        if id(step) in steps:
            continue
        if is_ready:
            steps[id(step)] = step
            if len(steps) > _MOST_STEPS:
                raise InvalidFormula(f"the formula has more than {_MOST_STEPS} steps")
            continue
        waiting.append((step, True))
        waiting += [(each, False) for each in reversed(step.operands)]
    return tuple(steps.values())
