"""Transposes: moves permutations of axes towards the outputs, where they cancel, so that few have to be computed.

Some frameworks have images of `[N, C, H, W]`; their importers put every operator on rows and columns between two
permutations (`importers/channels_first.py`). This pass records a permutation instead of computing it. An elementwise
operator works on its operand in memory order, and its result has the same permutation. Two successive permutations
become one, or none. The permutation is computed before an operator that needs its axes in their declared order, and
before an output.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. In a chain of convolutions, poolings and elementwise operators, at most one
    permutation of each input and each output is left. A permutation that only moves axes of length 1 becomes a reshape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.defined import definition_of
from service.compiler.qnn.ops.real import FUNCTIONS as REAL_FUNCTIONS
from service.compiler.qnn.ops.real import LANES, SEQUENTIAL
from service.compiler.qnn.ops.unary import FUNCTIONS

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Permuted:
    """A permuted tensor that is not computed: its axis `i` is axis `axes[i]` of `source`, as in
    `relax.permute_dims`.
    """

    source: relax.Expr
    axes: Axes

    @property
    def shape(self) -> tuple[int, ...]:
        extents = graph.shape_of(self.source)
        return tuple(extents[axis] for axis in self.axes)

    @property
    def in_place(self) -> bool:
        return self.axes == tuple(range(len(self.axes)))


def move_transposes(module: tvm.IRModule) -> tvm.IRModule:
    """Returns `module` with few permutations of axes."""
    return _Mover(graph.main_of(module)).run()


class _Mover:
    """Rewrites the function binding by binding."""

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self.builder = relax.BlockBuilder()
        self._values: dict[relax.Var, Permuted] = {}  # old variable -> its value in the new function
        self._computed: dict[tuple[relax.Expr, Axes], relax.Expr] = {}
        self._known: set[relax.Var] = set()  # new variables that do not depend on an input
        # new variable that repeats a value along some axes -> that value
        self.repeated: dict[relax.Expr, Permuted] = {}

    def run(self) -> tvm.IRModule:
        params = [relax.Var(param.name, param.ty) for param in self.function.params]
        self._values.update((old, _plain(new)) for old, new in zip(self.function.params, params, strict=True))
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for var, value in graph.bindings(self.function):
                    self._values[var] = self._move(var, value)
                results = graph.results_of(self.function)
                outputs = [self.builder.emit_output(graph.substitute(result, self)) for result in results]
            self.builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return self.builder.get()

    def _move(self, var: relax.Var, value: relax.Expr) -> Permuted:
        rule = _rule_of(value)
        if rule is not None:
            operands = [self._operand(arg) for arg in _operands(value)]
            result = rule(self, value, operands)
            if isinstance(result, Permuted):
                return result
            call, axes = result
            return Permuted(self.emit(call, var.name), axes)
        if isinstance(value, relax.Var):
            return self._values[value]
        written = self.emit(self._substituted(value), var.name)
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.broadcast_to":
            self.repeated[written] = self._operand(value.args[0])
        return _plain(written)

    def _substituted(self, value: relax.Expr) -> relax.Expr:
        if isinstance(value, relax.Call):
            return graph.with_args(value, [graph.substitute(arg, self) for arg in value.args])
        return graph.substitute(value, self)

    def _operand(self, expr: relax.Expr) -> Permuted:
        return self._values[expr] if isinstance(expr, relax.Var) else _plain(expr)

    def __getitem__(self, var: relax.Var) -> relax.Expr:
        """Returns the new value of `var` with its axes in their declared order."""
        value = self._values[var]
        return self.arranged(value, tuple(range(len(value.axes))))

    def arranged(self, value: Permuted, axes: Axes) -> relax.Expr:
        """Returns the tensor whose permutation by `axes` is `value`."""
        inverse = np.argsort(axes)
        return self.permuted(value.source, tuple(value.axes[axis] for axis in inverse))

    def permuted(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        """Returns `expr` with its axes permuted. The result is cached."""
        if axes == tuple(range(len(axes))):
            return expr
        key = (expr, axes)
        if key not in self._computed:
            self._computed[key] = self._permutation(expr, axes)
        return self._computed[key]

    def _permutation(self, expr: relax.Expr, axes: Axes) -> relax.Expr:
        constant = value_of(expr)
        if constant is not None:
            return relax.const(np.ascontiguousarray(constant.transpose(axes)), str(constant.dtype))
        shape = graph.shape_of(expr)
        name = f"{getattr(expr, 'name', '')}_permuted"
        moved = [axis for axis in axes if shape[axis] > 1]
        if moved == sorted(moved):
            return self.emit(relax.op.reshape(expr, [shape[axis] for axis in axes]), name)
        return self.emit(relax.op.permute_dims(expr, axes), name)

    def emit(self, expr: relax.Expr, name: str) -> relax.Var:
        var = graph.emit(self.builder, expr, name)
        if self._known.issuperset(graph.variables(expr)):
            self._known.add(var)
        return var

    def of_largest(self, operands: Sequence[Permuted]) -> Axes:
        """Returns the axes of the largest operand that depends on an input; that operand then needs no permutation. Of
        equally large operands, a permuted one is preferred.
        """
        computed = [each for each in operands if value_of(each.source) is None and each.source not in self._known]
        return min(computed or operands, key=lambda operand: (-math.prod(operand.shape), operand.in_place)).axes


# The result for an operator: a call on operands in memory order, and the axes of its result; or a permutation without a
# call.
Moved = Permuted | tuple[relax.Call, Axes]
Rule = Callable[[_Mover, relax.Call, list[Permuted]], Moved]


def _permute(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    (x,) = operands
    order = range(len(x.axes))[::-1] if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
    return Permuted(x.source, tuple(x.axes[axis] for axis in order))


def _elementwise(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    """The rule of an operator whose operands are broadcast. Operands with fewer dimensions get leading axes of length
    1.
    """
    operands = _unrepeated(mover, call, operands)
    rank = max(len(operand.axes) for operand in operands)
    axes = mover.of_largest([operand for operand in operands if len(operand.axes) == rank])
    if axes == tuple(range(rank)) or _names_axes(call):
        axes = tuple(range(rank))
        return graph.with_args(call, [mover.arranged(operand, _order(operand)) for operand in operands]), axes
    arranged = [mover.arranged(_widened(mover, operand, rank), axes) for operand in operands]
    return _with_axes(call, arranged, axes), axes


def _unrepeated(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> list[Permuted]:
    """Returns `operands` without explicit repetitions, if the shapes of the other operands imply them."""
    shape = graph.shape_of(call)
    if ops.name_of(call) is not None or not any(
        each.shape == shape and _is_unrepeated(mover, each) for each in operands
    ):
        return operands
    return [each if _is_unrepeated(mover, each) else mover.repeated[each.source] for each in operands]


def _is_unrepeated(mover: _Mover, operand: Permuted) -> bool:
    return not operand.in_place or operand.source not in mover.repeated


def _names_axes(call: relax.Call) -> bool:
    """Returns true if an operator refers to axes in something other than a per-axis type: in a type with blocks, or in
    a bias with one value per channel.
    """
    if ops.name_of(call) is None:
        return False
    operation = Operation(call)
    types = [operation.quantized(name) for name in call.attrs.keys() if name.endswith("_type")]  # noqa: SIM118
    return (operation.name == "qnn.requantize" and len(call.args) > 1) or any(each.blocks for each in types)


def _widened(mover: _Mover, operand: Permuted, rank: int) -> Permuted:
    missing = rank - len(operand.axes)
    if not missing:
        return operand
    plain, shape = mover.arranged(operand, _order(operand)), [1] * missing + list(operand.shape)
    constant = value_of(plain)
    if constant is not None:
        return _plain(relax.const(constant.reshape(shape), str(constant.dtype)))
    return _plain(mover.emit(relax.op.reshape(plain, shape), f"{getattr(plain, 'name', '')}_widened"))


def _with_axes(call: relax.Call, args: list[relax.Expr], axes: Axes) -> relax.Call:
    """Returns `call` on operands with permuted axes. The per-axis types of the call get the new number of their
    axis.
    """
    if ops.name_of(call) is None:
        return graph.with_args(call, args)
    operation, moved = Operation(call), {}
    for name in call.attrs.keys():  # noqa: SIM118 (DictAttrs has no `in`)
        if name.endswith("_type"):
            quantized = operation.quantized(name)
            moved[name] = quantized if quantized.axis is None else replace(quantized, axis=axes[quantized.axis])
    return ops.with_operands(call, *args, **moved)


def _concatenate(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    axes = mover.of_largest(operands)
    parts = relax.Tuple([mover.arranged(part, axes) for part in operands])
    if ops.name_of(call) is None:
        return relax.op.concat(parts, axes[int(call.attrs.axis) % len(axes)]), axes
    return ops.with_operands(call, parts, axis=axes[int(call.attrs["axis"])]), axes


def _pad(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    (x,) = operands
    named, widths = [int(width) for width in call.attrs.pad_width], [0] * (2 * len(x.axes))
    for axis, position in enumerate(x.axes):
        widths[2 * position : 2 * position + 2] = named[2 * axis : 2 * axis + 2]
    value, mode = float(call.attrs.pad_value), str(call.attrs.pad_mode)
    return relax.op.nn.pad(x.source, widths, pad_mode=mode, pad_value=value), x.axes


def _slice(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    (x,) = operands
    named, *bounds = ([int(field.value) for field in arg.fields] for arg in call.args[1:])
    positions = [x.axes[axis] for axis in named]
    return relax.op.strided_slice(x.source, positions, *bounds, assume_inbound=bool(call.attrs.assume_inbound)), x.axes


def _mean(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    (x,) = operands
    reduced, keepdims = {x.axes[int(axis)] for axis in call.attrs["axes"]}, bool(call.attrs["keepdims"])
    moved = ops.with_operands(call, x.source, axes=sorted(reduced))
    if keepdims:
        return moved, x.axes
    kept = [position for position in x.axes if position not in reduced]
    return moved, tuple(sorted(kept).index(position) for position in kept)


def _real_sum(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    """Permutes the result if the terms are then added in the same order as before. Otherwise the operand is permuted
    first.
    """
    (x,) = operands
    reduced = [x.axes[int(axis)] for axis in call.attrs["axes"]]
    if str(call.attrs["order"]) == SEQUENTIAL and reduced == sorted(reduced):
        return ops.with_operands(call, x.source, axes=reduced), x.axes
    if str(call.attrs["order"]) == LANES:
        return _last_axis(mover, call, operands)
    return graph.with_args(call, [mover.arranged(x, _order(x))]), _order(x)


def _last_axis(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    """The rule of an operator on rows. The rows may be in any order as long as the last axis stays last."""
    x, *others = operands  # a softmax may have a length
    axes = x.axes if x.axes[-1] == len(x.axes) - 1 else _order(x)
    return graph.with_args(call, [mover.arranged(x, axes), *(each.source for each in others)]), axes


def _reshape(mover: _Mover, call: relax.Call, operands: list[Permuted]) -> Moved:
    """Reshapes groups of axes into other groups. The axes of each group are brought together.

    The groups stay in memory order. If that needs a permutation and the last group stays last, the groups are brought
    to their declared order instead.
    """
    x, before, after = operands[0], operands[0].shape, graph.shape_of(call)
    if 0 in before:
        return relax.op.reshape(mover.arranged(x, _order(x)), after), tuple(range(len(after)))
    own = list(_groups(before, after))
    groups = sorted(own, key=lambda group: _place(x, group[0]))
    order = tuple(x.axes[axis] for old, _ in groups for axis in old)
    moved = [position for position in order if graph.shape_of(x.source)[position] > 1]
    if moved != sorted(moved) and own[-1] == groups[-1]:
        groups, order = own, tuple(x.axes[axis] for old, _ in own for axis in old)
    together = mover.permuted(x.source, order)
    positions = [axis for _, new in groups for axis in new]
    axes = tuple(int(position) for position in np.argsort(positions))
    shape = [after[axis] for axis in positions]
    if tuple(shape) == graph.shape_of(together):
        return Permuted(together, axes)
    return relax.op.reshape(together, shape), axes


def _groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Iterates over the smallest groups of neighbouring axes with equal numbers of elements."""
    i = j = 0
    while i < len(before) or j < len(after):
        old, new = list(range(i, min(i + 1, len(before)))), list(range(j, min(j + 1, len(after))))
        while (have := math.prod(before[axis] for axis in old)) != (want := math.prod(after[axis] for axis in new)):
            if have < want:
                old.append(i + len(old))
            else:
                new.append(j + len(new))
        i, j = i + len(old), j + len(new)
        yield old, new


def _place(x: Permuted, group: list[int]) -> tuple[int, int]:
    """Returns the sort key of a group of axes: the position of its longest axis. Groups of new axes of length 1 come
    last.
    """
    if not group:
        return (1, 0)
    return (0, x.axes[max(group, key=lambda axis: x.shape[axis])])


def _operands(call: relax.Call) -> list[relax.Expr]:
    """Returns the tensors among a call's arguments."""
    flat = [part for arg in call.args for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
    return [part for part in flat if isinstance(part.ty, relax.TensorType)]


def _plain(expr: relax.Expr) -> Permuted:
    rank = len(graph.shape_of(expr)) if isinstance(expr.ty, relax.TensorType) else 0
    return Permuted(expr, tuple(range(rank)))


def _order(x: Permuted) -> Axes:
    return tuple(range(len(x.axes)))


_ELEMENTWISE = (
    "relax.qnn.add",
    "relax.qnn.dequantize",
    "relax.qnn.mul",
    "relax.qnn.quantize",
    "relax.qnn.prelu",
    "relax.qnn.real_fma",
    "relax.qnn.requantize",
    "relax.qnn.requantize_add",
    "relax.qnn.squared_difference",
    "relax.qnn.sub",
    "relax.add",
    "relax.divide",
    "relax.maximum",
    "relax.minimum",
    "relax.multiply",
    "relax.nn.relu",
    "relax.sigmoid",
    "relax.subtract",
    "relax.tanh",
    *(f"relax.qnn.{function}" for function in (*FUNCTIONS, "table")),
    *(f"relax.qnn.real_{function}" for function in REAL_FUNCTIONS),
)


def _rule_of(value: relax.Expr) -> Rule | None:
    if not isinstance(value, relax.Call) or not hasattr(value.op, "name"):
        return None
    return _elementwise if definition_of(value.op.name) is not None else RULES.get(value.op.name)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "relax.concat": _concatenate,
    "relax.nn.pad": _pad,
    "relax.permute_dims": _permute,
    "relax.qnn.concatenate": _concatenate,
    "relax.qnn.l2_normalize": _last_axis,
    "relax.qnn.mean": _mean,
    "relax.qnn.real_mean": _last_axis,
    "relax.qnn.real_squares": _last_axis,
    "relax.qnn.real_sum": _real_sum,
    "relax.qnn.softmax": _last_axis,
    "relax.qnn.sum": _mean,
    "relax.reshape": _reshape,
    "relax.strided_slice": _slice,
}
