"""Finds the axes of a model's tensors that have the length of its input.

A model is imported at two lengths. The two modules consist of the same operators. An axis that has one length in one
module and the other length in the other has the length of the input; every other axis is equal in both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array

Axes = tuple[int, ...]


class Unbound(Exception):
    """The length of the model cannot be bound when the model is called. The message contains the reason."""


@dataclass(frozen=True)
class LengthAxes:
    """The axes of a module that have the length of its input.

    Attributes:
        length: the length that the module was imported for.
        axes: for each variable with such axes, the axes in order.
        counts: for each variable that is computed from the length itself, the indices of the operands that are the
            length, as in a mean of all positions.
    """

    length: int
    axes: Mapping[relax.Var, Axes]
    counts: Mapping[relax.Var, Collection[int]]

    def of(self, expr: relax.Expr) -> Axes:
        """Returns the axes of a variable or constant. A constant's axes are found by its shape, so an axis that is
        only as long as the input by coincidence counts too.
        """
        if isinstance(expr, relax.Var):
            return self.axes.get(expr, ())
        if not isinstance(getattr(expr, "ty", None), relax.TensorType):
            return ()
        return tuple(axis for axis, extent in enumerate(graph.shape_of(expr)) if extent == self.length)


def plain_axes(call: relax.Call) -> set[int]:
    """Returns the axes that a reduction of Relax reduces."""
    return {int(axis) % _rank(call) for axis in call.attrs.axis}


def own_axes(call: relax.Call) -> set[int]:
    """Returns the axes that a reduction of the QNN dialect reduces."""
    return {int(axis) % _rank(call) for axis in call.attrs["axes"]}


def last_axis(call: relax.Call) -> set[int]:
    """Returns the last axis of the first operand."""
    return {_rank(call) - 1}


def joined_axis(call: relax.Call) -> int:
    """Returns the axis along which a concatenation joins its parts."""
    axis = call.attrs["axis"] if ops.name_of(call) is not None else call.attrs.axis
    return int(axis) % len(graph.shape_of(call))


def _rank(call: relax.Call) -> int:
    return len(graph.shape_of(call.args[0]))


def length_axes(module: tvm.IRModule, shorter: tvm.IRModule) -> LengthAxes:
    """Returns the axes of `module` that have the length of its input.

    Args:
        shorter: the same model at a smaller length.

    Raises:
        Unbound: the modules differ in more than the length.
    """
    long, short = graph.main_of(module), graph.main_of(shorter)
    lengths = _lengths(long, short)
    axes: dict[relax.Var, Axes] = {}
    pairs = list(zip(long.params, short.params, strict=True))
    ours, theirs = list(graph.bindings(long)), list(graph.bindings(short))
    if len(ours) != len(theirs):
        raise Unbound("another length gives other operators")
    counts: dict[relax.Var, Collection[int]] = {}
    for (var, value), (other, other_value) in zip(ours, theirs, strict=True):
        if found := _compare(value, other_value, lengths, str(var.name)):
            counts[var] = found
        pairs.append((var, other))
    for var, other in pairs:
        if isinstance(var.ty, relax.TensorType) and (own := _axes(var, other, lengths)):
            axes[var] = own
    return LengthAxes(lengths[0], axes, counts)


def _lengths(long: relax.Function, short: relax.Function) -> tuple[int, int]:
    found = {
        sizes
        for ours, theirs in zip(long.params, short.params, strict=True)
        for sizes in zip(graph.shape_of(ours), graph.shape_of(theirs), strict=True)
        if sizes[0] != sizes[1]
    }
    if len(found) != 1:
        raise Unbound(f"{len(found)} sizes of the inputs vary")
    return found.pop()


def _axes(var: relax.Var, other: relax.Var, lengths: tuple[int, int]) -> Axes:
    ours, theirs = graph.shape_of(var), graph.shape_of(other)
    if len(ours) != len(theirs):
        raise Unbound(f"tensor {var.name!r} has another rank at another length")
    axes = tuple(axis for axis, (one, two) in enumerate(zip(ours, theirs, strict=True)) if one != two)
    if any((ours[axis], theirs[axis]) != lengths for axis in axes):
        raise Unbound(f"an axis of tensor {var.name!r} depends on the length, but is not as long as the input")
    return axes


def _compare(value: relax.Expr, other: relax.Expr, lengths: tuple[int, int], name: str) -> list[int]:
    """Returns the indices of the constant operands that are the length.

    Raises:
        Unbound: two bindings have different operators, or another constant does not begin with the constant of the
            shorter module.
    """
    if type(value) is not type(other) or graph.name_of(value) != graph.name_of(other):
        raise Unbound(f"tensor {name!r} has another operator at another length")
    counts: list[int] = []
    if not isinstance(value, relax.Call):
        return counts
    for index, (ours, theirs) in enumerate(zip(value.args, other.args, strict=True)):
        long, short = value_of(ours), value_of(theirs)
        if long is None or short is None or _begins(long, short):
            continue
        if long.size != 1 or short.size != 1 or (long.item(), short.item()) != lengths:
            raise Unbound(f"tensor {name!r} is computed from numbers that depend on the length")
        counts.append(index)
    return counts


def _begins(long: Array, short: Array) -> bool:
    """Returns true if `long` has the elements of `short` at the same indices."""
    if long.ndim != short.ndim or any(a < b for a, b in zip(long.shape, short.shape, strict=True)):
        return False
    begin = long[tuple(map(slice, short.shape))]
    return bool(((begin == short) | ((begin != begin) & (short != short))).all())
