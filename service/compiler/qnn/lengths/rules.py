"""Rules that keep elements beyond the length of the input from having an effect on the others, one for each operator.

An operator that computes each position independently needs nothing. One that combines positions (a sum, a maximum, a
product of matrices) reads elements beyond the length, so they are replaced by values without effect. An operator
without a rule makes a model unsuitable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.batch.rules import ONE_BY_ONE
from service.compiler.qnn.lengths.axes import (
    Axes,
    LengthAxes,
    Unbound,
    joined_axis,
    last_axis,
    own_axes,
    plain_axes,
)
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.real import LANES, SEQUENTIAL

# Replaces the elements of a tensor beyond the length along an axis: (tensor, axis, value) -> tensor.
Fill = Callable[[relax.Expr, int, float], relax.Expr]


class Site:
    """An operator that is rewritten.

    Attributes:
        call: the operator in the module that was imported.
        args: its new operands.
        result: the axes of its result that have the length of the input.
        fill: replaces elements beyond the length.
        emit: binds an intermediate value.
        mode: the numerics mode.
        length: the length, `[1]` int32.
    """

    def __init__(
        self,
        call: relax.Call,
        args: list[relax.Expr],
        lengths: LengthAxes,
        result: Axes,
        fill: Fill,
        emit: Callable[[relax.Expr], relax.Expr],
        mode: Mode,
        length: relax.Expr,
    ) -> None:
        self.call, self.args, self.lengths, self.result = call, args, lengths, result
        self.fill, self.emit, self.mode, self.length = fill, emit, mode, length
        self.name = graph.name_of(call)

    def axes(self, index: int) -> Axes:
        """Returns the axes of operand `index` that have the length of the input."""
        return self.lengths.of(self.call.args[index])

    def rank(self, index: int) -> int:
        return len(graph.shape_of(self.call.args[index]))

    def unchanged(self) -> relax.Expr:
        return graph.with_args(self.call, self.args)

    def refuse(self) -> Unbound:
        return Unbound(f"operator {self.name!r} works along the length")


Rule = Callable[[Site], relax.Expr]


def rule_of(call: relax.Call) -> Rule:
    """Returns the rule of an operator that reads tensors with the length of the input."""
    return _RULES.get(graph.name_of(call), _no_rule)


def _no_rule(site: Site) -> relax.Expr:
    raise site.refuse()


def _each(site: Site) -> relax.Expr:
    """The rule of an operator that computes each position independently."""
    return site.unchanged()


def _away_from(axes_of: Callable[[Site], set[int]]) -> Rule:
    """Returns the rule of an operator that combines elements only along `axes_of` its first operand."""

    def rule(site: Site) -> relax.Expr:
        if not axes_of(site).isdisjoint(site.axes(0)):
            raise site.refuse()
        return site.unchanged()

    return rule


def _reshape(site: Site) -> relax.Expr:
    """Requires that as many elements precede each axis as before: then the same elements are beyond the length."""
    before, after = graph.shape_of(site.call.args[0]), graph.shape_of(site.call)
    places = [math.prod(before[:axis]) for axis in site.axes(0)]
    if places != [math.prod(after[:axis]) for axis in site.result]:
        raise site.refuse()
    return site.unchanged()


# -- reductions


def _extreme(identity: Callable[[str], float], operator: Callable[..., relax.Expr]) -> Rule:
    """Returns the rule of a maximum or minimum. Other axes are reduced first, so that less is filled."""

    def rule(site: Site) -> relax.Expr:
        rank = site.rank(0)
        reduced = plain_axes(site.call)
        along = sorted(reduced & set(site.axes(0)))
        if not along:
            return site.unchanged()
        value, dtype = site.args[0], str(site.call.args[0].ty.dtype)
        if others := sorted(reduced - set(along)):
            value = site.emit(operator(value, axis=others, keepdims=True))
        shape, result = graph.shape_of(value), graph.shape_of(site.call)
        if math.prod(shape) == shape[along[0]]:
            # As one row, the elements beyond the length are filled by the kernel that reads them. The kernel that
            # writes them need not compute them (`lengths.unread`).
            value = site.emit(relax.op.reshape(value, [*(1 for _ in shape[1:]), shape[along[0]]]))
            along = [rank - 1]
        for axis in along:
            value = site.fill(value, axis, identity(dtype))
        made = site.emit(operator(value, axis=along, keepdims=True))
        return made if graph.shape_of(made) == result else relax.op.reshape(made, list(result))

    return rule


def _lowest(dtype: str) -> float:
    return -math.inf if dtype.startswith(("float", "bfloat")) else float(np.iinfo(dtype).min)


def _highest(dtype: str) -> float:
    return math.inf if dtype.startswith(("float", "bfloat")) else float(np.iinfo(dtype).max)


def _sum(axes_of: Callable[[Site], set[int]]) -> Rule:
    """Returns the rule of a sum, to which zeros at the end add nothing."""

    def rule(site: Site) -> relax.Expr:
        for axis in sorted(axes_of(site) & set(site.axes(0))):
            site.args[0] = site.fill(site.args[0], axis, 0)
        return site.unchanged()

    return rule


def _real_sum(site: Site) -> relax.Expr:
    """Other orders than these two treat the last terms differently."""
    along = set(_own_axes(site)) & set(site.axes(0))
    if along and str(site.call.attrs["order"]) not in (LANES, SEQUENTIAL):
        raise site.refuse()
    return _sum(_own_axes)(site)


def _softmax(site: Site) -> relax.Expr:
    """Some formulas of an 8-bit softmax compute only the first columns."""
    if site.rank(0) - 1 not in site.axes(0):
        return site.unchanged()
    operation = Operation(site.call)
    if not getattr(site.mode.formula(operation), "takes_length", False):
        raise site.refuse()
    in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
    return ops.softmax(site.args[0], in_type, out_type, beta=operation.floating("beta"), length=site.length)


def _own_axes(site: Site) -> set[int]:
    return own_axes(site.call)


def _plain_axes(site: Site) -> set[int]:
    return plain_axes(site.call)


def _one_axis(site: Site) -> set[int]:
    return {int(site.call.attrs.axis) % site.rank(0)}


def _last(site: Site) -> set[int]:
    return last_axis(site.call)


# -- products


def _matmul(site: Site) -> relax.Expr:
    """Multiplies `[…, M, K]` by `[…, K, N]`. Products beyond the length are not added, or become zero."""
    if site.rank(0) - 1 not in site.axes(0):
        return site.unchanged()
    name, computed = ops.name_of(site.call), all(isinstance(arg, relax.Var) for arg in site.call.args)
    if name in ("matmul", "real_matmul") and computed:
        return ops.with_operands(site.call, *site.args, site.length)
    quantized = name == "matmul"
    zero = Operation(site.call).per_tensor("lhs_type").zero_point if quantized else 0
    site.args[0] = site.fill(site.args[0], site.rank(0) - 1, zero)
    if not quantized:  # zero times an infinity is not zero
        site.args[1] = site.fill(site.args[1], site.rank(1) - 2, 0)
    return site.unchanged()


def _convolution(site: Site) -> relax.Expr:
    """Allows a kernel of size 1 along the length, without padding and with a stride of 1."""
    attrs, kernel = site.call.attrs, graph.shape_of(site.call.args[1])
    for axis in site.axes(0):
        if axis == 0:
            continue
        at = axis - 1
        padding = [int(each) for each in attrs["padding"]]
        if axis == site.rank(0) - 1 or kernel[1 + at] != 1 or int(attrs["strides"][at]) != 1:
            raise site.refuse()
        if padding[at] or padding[at + len(padding) // 2]:
            raise site.refuse()
    return _with_weights(site)


def _with_weights(site: Site) -> relax.Expr:
    if any(isinstance(site.call.args[index], relax.Var) and site.axes(index) for index in range(1, len(site.args))):
        raise site.refuse()
    return site.unchanged()


def _rows(site: Site) -> relax.Expr:
    """The rule of a product with weights, along the last axis."""
    if site.rank(0) - 1 in site.axes(0):
        raise site.refuse()
    return _with_weights(site)


# -- parts of tensors


def _take(site: Site) -> relax.Expr:
    """Allows constant places that exist at every length."""
    axis = int(site.call.attrs.axis) % site.rank(0)
    if axis not in site.axes(0):
        return site.unchanged()
    places = value_of(site.call.args[1])
    if places is None or places.size == 0 or places.min() < 0:
        raise site.refuse()
    limits: Any = np.zeros((), np.int64)
    for along in site.axes(1):
        limits = np.maximum(limits, np.arange(places.shape[along]).reshape([-1] + [1] * (places.ndim - 1 - along)))
    if (places > limits).any():
        raise site.refuse()
    return site.unchanged()


def _slice(site: Site) -> relax.Expr:
    """Allows a slice of all positions, or of the first one."""
    axes, begins, ends, *more = ([int(field.value) for field in arg.fields] for arg in site.call.args[1:])
    extents = graph.shape_of(site.call.args[0])
    for axis, begin, end, step in zip(axes, begins, ends, *(more or [[1] * len(axes)]), strict=True):
        rank_axis = axis % len(extents)
        if rank_axis not in site.axes(0):
            continue
        whole = begin == 0 and step == 1 and end >= extents[rank_axis]
        if not whole and (begin, end) != (0, 1):
            raise site.refuse()
    return site.unchanged()


def _concatenate(site: Site) -> relax.Expr:
    axis = joined_axis(site.call)
    if any(axis in site.lengths.of(part) for part in site.call.args[0].fields if isinstance(part, relax.Var)):
        raise site.refuse()
    return site.unchanged()


def _pad(site: Site) -> relax.Expr:
    widths = [int(width) for width in site.call.attrs.pad_width]
    if any(widths[2 * axis] or widths[2 * axis + 1] for axis in site.axes(0)):
        raise site.refuse()
    return site.unchanged()


_BY_POSITION = (
    *(name.removeprefix("relax.") for name in ONE_BY_ONE),
    *("broadcast_to", "permute_dims", "qnn.dynamic_parameter", "qnn.real_fma", "qnn.running_sum", "tril", "triu"),
)

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_BY_POSITION, _each),
    "argmax": _away_from(_one_axis),
    "argmin": _away_from(_one_axis),
    "concat": _concatenate,
    "flip": _away_from(_one_axis),
    "gather_elements": _away_from(_one_axis),
    "matmul": _matmul,
    "max": _extreme(_lowest, relax.op.max),
    "min": _extreme(_highest, relax.op.min),
    "nn.pad": _pad,
    "qnn.block_matmul": _rows,
    "qnn.concatenate": _concatenate,
    "qnn.conv2d": _convolution,
    "qnn.dense": _rows,
    "qnn.l2_normalize": _away_from(_last),
    "qnn.matmul": _matmul,
    "qnn.mean": _away_from(_own_axes),
    "qnn.real_conv2d": _convolution,
    "qnn.real_matmul": _matmul,
    "qnn.real_mean": _away_from(_last),
    "qnn.real_squares": _away_from(_last),
    "qnn.real_sum": _real_sum,
    "qnn.softmax": _softmax,
    "qnn.sum": _away_from(_own_axes),
    "reshape": _reshape,
    "strided_slice": _slice,
    "sum": _sum(_plain_axes),
    "take": _take,
}
