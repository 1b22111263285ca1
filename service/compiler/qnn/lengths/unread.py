"""Finds the axes along which nothing reads the elements of a tensor beyond the length of the input.

`bind` replaces elements beyond the length before every operator that combines positions. All other operators compute
each position from the same position of their operands, so the elements beyond the length of such a tensor reach only
elements beyond the length of other tensors. They need not be computed (`kernels.trimming`).

The replaced elements themselves are read. So every axis of every tensor has one of three states:
- `FREE`: its elements do not depend on the input's positions, such as those of weights, channels and constants.
- `UNREAD`: it has the length of the input, and nothing reads elements beyond it.
- `READ`: elements beyond the length are read, or nothing is known about them.
An operator that computes position by position gives an axis the greatest state that one of its operands has there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.batch.rules import ONE_BY_ONE
from service.compiler.qnn.lengths.axes import Axes, joined_axis, last_axis, own_axes, plain_axes
from service.compiler.qnn.operation import value_of

FREE, UNREAD, READ = range(3)
States = list[int]


class UnreadAxes:
    """The axes of each tensor of a function along which nothing reads elements beyond the length."""

    def __init__(self, function: relax.Function, inputs: Sequence[Axes]) -> None:
        """
        Args:
            inputs: for each input, the axes that have the length of the input. The parameter after the inputs is the
                length. Without inputs, no tensor has such axes.
        """
        self._states: dict[relax.Var, States] = {}
        self._counts: set[relax.Var] = set()  # the length, and numbers that are computed from it
        self._inside: set[relax.Var] = set()
        if not inputs:
            return
        for param, axes in zip(function.params, inputs, strict=False):
            self._states[param] = [UNREAD if axis in axes else FREE for axis in range(len(graph.shape_of(param)))]
        self._counts.add(function.params[-1])
        for var, value in graph.bindings(function):
            if isinstance(getattr(var, "ty", None), relax.TensorType):
                self._states[var] = self._states_of_value(var, value)
                if isinstance(value, relax.Call) and _size(var) == 1 and any(map(self.is_count, value.args)):
                    self._counts.add(var)
                if _compares_columns(value, function.params[-1]):
                    self._inside.add(var)

    def of(self, expr: relax.Expr) -> Axes:
        """Returns the axes of a variable. Other expressions have none."""
        states = self._states.get(expr, []) if isinstance(expr, relax.Var) else []
        return tuple(axis for axis, state in enumerate(states) if state == UNREAD)

    def states(self, expr: relax.Expr) -> States:
        """Returns the state of each axis of a tensor."""
        rank = len(graph.shape_of(expr))
        if value_of(expr) is not None:
            return [FREE] * rank
        return self._states.get(expr, [READ] * rank) if isinstance(expr, relax.Var) else [READ] * rank

    def is_count(self, expr: relax.Expr) -> bool:
        """Returns true for the length and for numbers that are computed from it."""
        return isinstance(expr, relax.Var) and expr in self._counts

    def is_inside(self, expr: relax.Expr) -> bool:
        """Returns true if each element of a tensor is true for an index of the last axis that is less than the length,
        and false for the others.
        """
        return isinstance(expr, relax.Var) and expr in self._inside

    def _states_of_value(self, var: relax.Var, value: relax.Expr) -> States:
        if isinstance(value, relax.Var):
            return self.states(value)
        shape = graph.shape_of(var)
        rule = _RULES.get(graph.name_of(value)) if isinstance(value, relax.Call) else None
        states = [READ] * len(shape) if rule is None else rule(self, value, shape)
        return [FREE if extent == 1 else state for extent, state in zip(shape, states, strict=True)]


Rule = Callable[[UnreadAxes, relax.Call, Sequence[int]], States]


def _aligned(axes: UnreadAxes, args: Sequence[relax.Expr], shape: Sequence[int]) -> States:
    """Returns the greatest state of each axis. Operands of a smaller rank are aligned at the end."""
    states = [FREE] * len(shape)
    for arg in args:
        if not isinstance(getattr(arg, "ty", None), relax.TensorType):
            continue
        own = axes.states(arg)
        for axis, state in enumerate(own, start=len(shape) - len(own)):
            states[axis] = max(states[axis], state)
    return states


def _elementwise(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """A comparison of positions with the length shows which elements are beyond it, so all its elements are read."""
    states = _aligned(axes, call.args, shape)
    return [state or READ for state in states] if any(map(axes.is_count, call.args)) else states


def _permute(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    states = axes.states(call.args[0])
    return [states[int(axis)] for axis in call.attrs.axes or range(len(shape))[::-1]]


def _reshape(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """An axis is still there if it has as many elements as before, and as many precede it."""
    before, states = graph.shape_of(call.args[0]), axes.states(call.args[0])
    left = {
        (math.prod(before[:axis]), extent): states[axis] for axis, extent in enumerate(before) if states[axis] != FREE
    }
    found = [left.pop((math.prod(shape[:axis]), extent), FREE) for axis, extent in enumerate(shape)]
    return [READ] * len(shape) if left else found


def _matmul(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """`[…, M, K]` times `[…, K, N]`."""
    lhs, rhs = (axes.states(arg) for arg in call.args[:2])
    if min(len(lhs), len(rhs)) < 2:
        return [READ] * len(shape)
    outer = [FREE] * (len(shape) - 2)
    for states in (lhs[:-2], rhs[:-2]):
        for axis, state in enumerate(states, start=len(outer) - len(states)):
            outer[axis] = max(outer[axis], state)
    return [*outer, lhs[-2], rhs[-1]]


def _dense(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    states = axes.states(call.args[0])
    return [*states[:-1], FREE] if states[-1] == FREE else [READ] * len(shape)


def _same(axes: UnreadAxes, call: relax.Call, _shape: Sequence[int]) -> States:
    """Operators that work along the last axis. If it has the length, all its elements are read, unless the operator
    takes the length.
    """
    states = axes.states(call.args[0])
    if states[-1] == UNREAD and any(map(axes.is_count, call.args[1:])):
        return states
    return [*states[:-1], READ if states[-1] else FREE]


def _convolution(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """A pixel of the output depends on one pixel of the input along some axes of `[N, H, W, C]`."""
    before, states = graph.shape_of(call.args[0]), axes.states(call.args[0])
    kernel, strides = graph.shape_of(call.args[1]), [int(each) for each in call.attrs["strides"]]
    found = []
    for axis, state in enumerate(states[:-1]):
        alone = axis == 0 or (kernel[axis] == 1 and strides[axis - 1] == 1 and before[axis] == shape[axis])
        found.append(state if alone or state == FREE else READ)
    return [*found, FREE] if states[-1] == FREE else [READ] * len(shape)


def _reduction(reduced_of: Callable[[relax.Call], set[int]], keepdims_of: Callable[[relax.Call], bool]) -> Rule:
    def rule(axes: UnreadAxes, call: relax.Call, _shape: Sequence[int]) -> States:
        states = axes.states(call.args[0])
        reduced = reduced_of(call)
        if keepdims_of(call):
            return [FREE if axis in reduced else state for axis, state in enumerate(states)]
        return [state for axis, state in enumerate(states) if axis not in reduced]

    return rule


def _take(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """Rows of a constant."""
    if value_of(call.args[0]) is None:
        return [READ] * len(shape)
    rank = len(graph.shape_of(call.args[0]))
    axis = int(call.attrs.axis) % rank
    return [FREE] * axis + axes.states(call.args[1]) + [FREE] * (rank - 1 - axis)


def _gather_elements(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """Elements at the given places along an axis, and at their own place along the other axes."""
    data, places = (axes.states(arg) for arg in call.args)
    along = int(call.attrs.axis) % len(shape)
    states = list(map(max, data, places))
    states[along] = READ if data[along] else places[along]
    return states


def _part(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    """A slice."""
    before = graph.shape_of(call.args[0])
    return [
        state if extent == shape[axis] or state == FREE else READ
        for axis, (extent, state) in enumerate(zip(before, axes.states(call.args[0]), strict=True))
    ]


def _broadcast(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    return _aligned(axes, call.args[:1], shape)


def _concatenate(axes: UnreadAxes, call: relax.Call, shape: Sequence[int]) -> States:
    along = joined_axis(call)
    states = _aligned(axes, list(call.args[0].fields), shape)
    return [READ if axis == along and state else state for axis, state in enumerate(states)]


def _compares_columns(value: relax.Expr, length: relax.Var) -> bool:
    """Returns true if `value` compares the indices of its last axis with the length."""
    if graph.name_of(value) != "less" or not value.args[1].same_as(length):
        return False
    numbers = value_of(value.args[0])
    return (
        numbers is not None
        and numbers.shape[-1:] == (numbers.size,)
        and np.array_equal(numbers.reshape(-1), np.arange(numbers.size))
    )


def _size(var: relax.Var) -> int:
    return math.prod(graph.shape_of(var))


_PLAIN = _reduction(plain_axes, lambda call: bool(call.attrs.keepdims))
_OF_ROWS = _reduction(last_axis, lambda _call: True)

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((name.removeprefix("relax.") for name in ONE_BY_ONE), _elementwise),
    "broadcast_to": _broadcast,
    "concat": _concatenate,
    "matmul": _matmul,
    "gather_elements": _gather_elements,
    "max": _PLAIN,
    "min": _PLAIN,
    "permute_dims": _permute,
    "qnn.block_matmul": _dense,
    "qnn.concatenate": _concatenate,
    "qnn.conv2d": _convolution,
    "qnn.dense": _dense,
    "qnn.l2_normalize": _same,
    "qnn.matmul": _matmul,
    "qnn.real_conv2d": _convolution,
    "qnn.real_fma": _elementwise,
    "qnn.real_matmul": _matmul,
    "qnn.real_mean": _OF_ROWS,
    "qnn.real_squares": _OF_ROWS,
    "qnn.real_sum": _reduction(own_axes, lambda _call: True),
    "qnn.running_sum": _elementwise,  # of a position and those before it
    "qnn.softmax": _same,
    "reshape": _reshape,
    "strided_slice": _part,
    "sum": _PLAIN,
    "take": _take,
    "tril": _elementwise,
    "triu": _elementwise,
}
