"""One rule per operator: how the operator computes several samples at once.

If the operator does not work along the axis that contains the samples, one call computes all of them in the same way as
one sample. If the operator works along that axis, the axis is split first, so that the samples have an axis of their
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.batch.batch_builder import BatchBuilder, Operand, name_of
from service.compiler.qnn.batch.samples import Samples, Shape, apart, batched_shape
from service.compiler.qnn.ops.casts import RULES as CASTS
from service.compiler.qnn.ops.defined import definition_of
from service.compiler.qnn.ops.elementwise import RULES as ARITHMETIC
from service.compiler.qnn.ops.real import FUNCTIONS
from service.compiler.qnn.ops.unary import RULES as UNARY
from service.compiler.qnn.plain import ELEMENTWISE

# (builder, the call for one sample, the shape of its result) -> the value for the batch.
Rule = Callable[[BatchBuilder, relax.Call, Shape], Samples]


def rule_of(call: relax.Call) -> Rule:
    name = str(call.op.name)
    return _elementwise if definition_of(name) is not None else _RULES.get(name, _first_dimension)


def _reshape(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x = _samples(b, call)
    return b.reshape_to(x.value, shape, x.before)


def _permute(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x = _samples(b, call)
    order = [int(axis) for axis in call.attrs.axes or range(len(shape))[::-1]]
    return b.emit_value(graph.with_args(call, [x.value]), shape, order.index(x.axis), x.outer)


# -- element by element


def _elementwise(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    """The rule of an operator whose operands are broadcast to the result's shape."""
    operands = [b.operand(arg) for arg in call.args]
    position = _place(operands, shape)
    placed = [_align_samples(b, each, position, len(shape)) for each in operands]
    if all(_fits(each, position, shape) for each in placed):
        args = [each.value if isinstance(each, Samples) else each for each in placed]
        return b.emit_value(graph.with_args(call, args), shape, position.axis, position.outer)
    if position.outer != 1:
        raise b.mixed(name_of(call))
    args = [_with_own_axis(b, each, position.axis, len(shape)) for each in placed]
    made = b.emit(graph.with_args(call, args))
    return b.reshape_to(made, shape, math.prod(shape[: position.axis]))


def _place(operands: Sequence[Operand], shape: Shape) -> Samples:
    """Returns the operand whose sample axis has the same length as the sample axis of the result. If no such operand
    exists, returns any operand with samples.
    """
    widened = [_widened(each, len(shape)) for each in operands if isinstance(each, Samples)]
    return max(widened, key=lambda each: each.extent == shape[each.axis])


def _widened(x: Samples, rank: int) -> Samples:
    """Returns `x` with leading axes of length 1 added, so that it has `rank` axes. The elements are unchanged."""
    more = rank - len(x.shape)
    return replace(x, shape=(1,) * more + x.shape, axis=x.axis + more)


def _align_samples(b: BatchBuilder, x: Operand, index: Samples, rank: int) -> Operand:
    """Returns `x` with its samples on the axis of `index`, if the two axes are equivalent: all axes between them have
    length 1.
    """
    if not isinstance(x, Samples):
        return x
    wide = _widened(x, rank)
    here = math.prod(wide.shape[: index.axis])
    if wide.axis == index.axis or wide.shape[index.axis] != 1 or here != wide.before:
        return wide
    return replace(
        wide,
        value=b.reshaped(wide.value, batched_shape(wide.shape, index.axis, b.batch)),
        axis=index.axis,
        outer=1,
    )


def _fits(x: Operand, index: Samples, shape: Shape) -> bool:
    """Returns true if an operand needs no change for a result with its samples at `index`."""
    if isinstance(x, Samples):
        return (x.axis, x.outer, x.extent) == (index.axis, index.outer, shape[index.axis])
    own = graph.shape_of(x)
    axis = index.axis - (len(shape) - len(own))
    return axis < 0 or own[axis] == 1


def _with_own_axis(b: BatchBuilder, x: Operand, axis: int, rank: int) -> relax.Expr:
    """Returns an operand with a separate sample axis before `axis`. The axis has length 1 if the operand is the same
    for all samples.
    """
    if isinstance(x, Samples):
        if x.axis != axis or x.outer != 1:
            raise b.mixed("an operand of")
        return b.reshaped(x.value, apart(x.shape, axis, b.batch))
    own = graph.shape_of(x)
    at = axis - (rank - len(own))
    return x if at <= 0 else b.reshaped(x, apart(own, at, 1))


# -- along axes


def _reduce(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x, own = _samples(b, call), ops.name_of(call) is not None
    axes = [int(axis) for axis in (call.attrs["axes"] if own else call.attrs.axis)]
    kept = len(shape) == len(x.shape)
    if x.axis not in axes:
        axis = x.axis if kept else x.axis - sum(each < x.axis for each in axes)
        return b.emit_value(graph.with_args(call, [x.value]), shape, axis, x.outer)
    if x.outer != 1:
        raise b.mixed(name_of(call))
    value = b.reshaped(x.value, apart(x.shape, x.axis, b.batch))
    moved = [axis + (axis >= x.axis) for axis in axes]
    made = b.emit(_reduced(call, value, moved))
    before = math.prod(1 if axis in axes else x.shape[axis] for axis in range(x.axis))
    return b.reshape_to(made, shape, before)


def _reduced(call: relax.Call, x: relax.Expr, axes: list[int]) -> relax.Call:
    """Returns `call` as a reduction along `axes`; these axes stay in the result with a length of 1."""
    if ops.name_of(call) is None:
        return getattr(relax.op, name_of(call))(x, axis=axes, keepdims=True)
    keeps = {"keepdims": True} if "keepdims" in dict(call.attrs.items()) else {}
    return ops.with_operands(call, x, axes=axes, **keeps)


def _along(axis_of: Callable[[relax.Call, int], int]) -> Rule:
    """Returns the rule of an operator that works along one axis and treats the other axes independently."""

    def rule(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
        x = _samples(b, call)
        if axis_of(call, len(x.shape)) == x.axis or len(shape) != len(x.shape):
            raise b.mixed(name_of(call))
        return b.emit_value(graph.with_args(call, [x.value, *call.args[1:]]), shape, x.axis, x.outer)

    return rule


def _extreme_place(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x, axis = _samples(b, call), int(call.attrs.axis)
    if axis % len(x.shape) == x.axis:
        raise b.mixed(name_of(call))
    moved = not call.attrs.keepdims and axis % len(x.shape) < x.axis
    return b.emit_value(graph.with_args(call, [x.value]), shape, x.axis - moved, x.outer)


# -- parts of tensors


def _slice(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x = _samples(b, call)
    axes, *bounds = ([int(field.value) for field in arg.fields] for arg in call.args[1:])
    if x.axis not in axes:
        return b.emit_value(graph.with_args(call, [x.value, *call.args[1:]]), shape, x.axis, x.outer)
    if x.outer != 1:
        raise b.mixed(name_of(call))
    value = b.reshaped(x.value, apart(x.shape, x.axis, b.batch))
    made = b.emit(relax.op.strided_slice(value, [axis + (axis >= x.axis) for axis in axes], *bounds))
    return b.reshape_to(made, shape, math.prod(shape[: x.axis]))


def _concatenate(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    own = ops.name_of(call) is not None
    axis = int(call.attrs["axis"] if own else call.attrs.axis) % len(shape)
    operands = [b.operand(part) for part in call.args[0].fields]
    position = next(each for each in operands if isinstance(each, Samples))
    inside = position.axis == axis
    if inside and position.outer != 1:
        raise b.mixed(name_of(call))
    parts = []
    for each in operands:
        part = (
            _repeated(b, each, position)
            if not isinstance(each, Samples)
            else _align_samples(b, each, position, len(shape))
        )
        if (part.axis, part.outer) != (position.axis, position.outer):
            raise b.mixed(name_of(call))
        parts.append(b.reshaped(part.value, apart(part.shape, axis, b.batch)) if inside else part.value)
    joined = relax.Tuple(parts)
    if not inside:
        return b.emit_value(graph.with_args(call, [joined]), shape, position.axis, position.outer)
    moved = ops.with_operands(call, joined, axis=axis + 1) if own else relax.op.concat(parts, axis + 1)
    return b.reshape_to(b.emit(moved), shape, math.prod(shape[:axis]))


def _repeated(b: BatchBuilder, x: relax.Expr, index: Samples) -> Samples:
    """Repeats a tensor once for each sample. The tensor, such as a class token, does not depend on any input."""
    shape = graph.shape_of(x)
    if index.outer != 1:
        raise b.mixed("an operand of")
    one = b.reshaped(x, apart(shape, index.axis, 1))
    several = b.emit(relax.op.broadcast_to(one, apart(shape, index.axis, b.batch)))
    return Samples(b.reshaped(several, batched_shape(shape, index.axis, b.batch)), shape, index.axis)


def _take(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x, indices = (b.operand(arg) for arg in call.args)
    axis = int(call.attrs.axis)
    if isinstance(x, Samples) and isinstance(indices, Samples):
        raise b.mixed("take")
    if isinstance(indices, Samples):
        return b.emit_value(graph.with_args(call, [x, indices.value]), shape, axis + indices.axis, indices.outer)
    assert isinstance(x, Samples)
    if x.axis != axis:
        moved = x.axis if x.axis < axis else x.axis + len(graph.shape_of(indices)) - 1
        return b.emit_value(graph.with_args(call, [x.value, indices]), shape, moved, x.outer)
    if x.outer != 1:
        raise b.mixed("take")
    value = b.reshaped(x.value, apart(x.shape, axis, b.batch))
    made = b.emit(relax.op.take(value, indices, axis + 1, mode=str(call.attrs.mode)))
    return b.reshape_to(made, shape, math.prod(x.shape[:axis]))


def _gather_elements(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    operands = [b.operand(arg) for arg in call.args]
    position = _place(operands, shape)
    placed = [each if isinstance(each, Samples) else _repeated(b, each, position) for each in operands]
    alike = {(each.axis, each.outer, each.extent) for each in placed} == {
        (position.axis, position.outer, position.extent)
    }
    if not alike or int(call.attrs.axis) % len(shape) == position.axis:
        raise b.mixed("gather_elements")
    return b.emit_value(graph.with_args(call, [each.value for each in placed]), shape, position.axis, position.outer)


def _broadcast(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x = _widened(_samples(b, call), len(shape))
    if x.extent == shape[x.axis]:
        return b.emit_value(
            relax.op.broadcast_to(x.value, batched_shape(shape, x.axis, b.batch)), shape, x.axis, x.outer
        )
    value = b.reshaped(x.value, apart(x.shape, x.axis, b.batch))
    made = b.emit(relax.op.broadcast_to(value, apart(shape, x.axis, b.batch)))
    return b.reshape_to(made, shape, math.prod(shape[: x.axis]))


def _pad(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    x = _samples(b, call)
    if any(int(width) for width in call.attrs.pad_width[2 * x.axis : 2 * x.axis + 2]):
        raise b.mixed("pad")
    return b.emit_value(graph.with_args(call, [x.value]), shape, x.axis, x.outer)


# -- products


def _matmul(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    """Multiplies matrices `[…, M, K]` and `[…, K, N]`, and adds a bias `[N]` that is the same for all samples."""
    lhs, rhs, *bias = (b.operand(arg) for arg in call.args)
    rank = len(shape)
    if not isinstance(rhs, Samples):
        assert isinstance(lhs, Samples)
        position, rows = _widened(lhs, rank), rank - 2
        apart_from = position.axis == rows or (position.axis < rows and _fits(rhs, position, shape))
        if not apart_from or len(lhs.shape) != rank:
            raise b.mixed(name_of(call))
    else:
        position = _place([each for each in (lhs, rhs) if isinstance(each, Samples)], shape)
        lhs, rhs = (_align_samples(b, each, position, rank) for each in (lhs, rhs))
        columns = position.axis == rank - 1 and not isinstance(lhs, Samples)
        if not columns and not (position.axis < rank - 2 and all(_fits(each, position, shape) for each in (lhs, rhs))):
            raise b.mixed(name_of(call))
    args = [each.value if isinstance(each, Samples) else each for each in (lhs, rhs, *bias)]
    return b.emit_value(graph.with_args(call, args), shape, position.axis, position.outer)


def _first_dimension(b: BatchBuilder, call: relax.Call, shape: Shape) -> Samples:
    """The rule of an operator that computes each element of its operands' first dimension independently."""
    operands = [b.operand(arg) for arg in call.args]
    samples = [each for each in operands if isinstance(each, Samples)]
    if ops.name_of(call) in _OF_WEIGHTS and any(isinstance(each, Samples) for each in operands[1:]):
        raise b.mixed(name_of(call))  # each sample has its own weights
    extents = {each.extent for each in samples}
    fits = extents == {1} or (len(extents) == 1 and ops.name_of(call) in _OF_ROWS)
    if not samples or not fits or any(each.axis or each.outer != 1 for each in samples):
        raise b.mixed(name_of(call))
    if shape[:1] != (samples[0].extent,):
        raise b.mixed(name_of(call))
    args = [each.value if isinstance(each, Samples) else each for each in operands]
    return b.emit_value(graph.with_args(call, args), shape, 0)


def _samples(b: BatchBuilder, call: relax.Call) -> Samples:
    """Returns the first operand, which must depend on the samples."""
    x = b.operand(call.args[0])
    if not isinstance(x, Samples):
        raise b.mixed(name_of(call))
    return x


_OF_WEIGHTS = ("conv2d", "conv2d_transpose", "dense", "real_conv2d")
_OF_ROWS = frozenset(
    {
        *("avg_pool2d", "conv2d", "dense", "dynamic_pad", "dynamic_parameter", "max_pool2d", "real_conv2d"),
        *("resize_bilinear", "take_pixels"),
    }
)
# Operators that compute each element of the result from the elements at its place.
ONE_BY_ONE = (
    *ELEMENTWISE,
    *(f"relax.qnn.{name}" for name in (*CASTS, *ARITHMETIC, *UNARY)),
    *(f"relax.qnn.real_{name}" for name in FUNCTIONS),
    "relax.qnn.dynamic_quantize",
    "relax.qnn.dynamic_scale",
    "relax.qnn.real_power",
)
_REDUCTIONS = ("max", "mean", "min", "prod", "qnn.mean", "qnn.real_sum", "qnn.sum", "sum")
_last = _along(lambda _call, rank: rank - 1)

_RULES: dict[str, Rule] = {
    **dict.fromkeys(ONE_BY_ONE, _elementwise),
    **{f"relax.{name}": _reduce for name in _REDUCTIONS},
    **dict.fromkeys(("relax.argmax", "relax.argmin"), _extreme_place),
    **dict.fromkeys(("relax.concat", "relax.qnn.concatenate"), _concatenate),
    **dict.fromkeys(("relax.matmul", "relax.qnn.matmul", "relax.qnn.real_matmul", "relax.qnn.block_matmul"), _matmul),
    **dict.fromkeys(("relax.qnn.l2_normalize", "relax.qnn.softmax", "relax.qnn.top_places"), _last),
    "relax.broadcast_to": _broadcast,
    "relax.gather_elements": _gather_elements,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _permute,
    "relax.qnn.running_sum": _along(lambda call, _rank: int(call.attrs["axis"])),
    "relax.reshape": _reshape,
    "relax.strided_slice": _slice,
    "relax.take": _take,
}
