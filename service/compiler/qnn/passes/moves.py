"""Move reshapes: moves elementwise operators before reshapes and slices. The reshapes and slices are then directly
before their readers.

Attention scales its queries and keys after the reshape that splits the heads. If one dense layer computes queries, keys
and values, its result is sliced between two reshapes. Kernels work on tokens `[N, T, C]`. A look-up before the heads
are split needs no layout change, and a slice of the channels then consists of whole blocks.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. An elementwise function of one 8-bit tensor is computed before the tensor is
    reshaped. A slice of a reshaped tensor that selects adjacent channels becomes a slice of those channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.unary import FUNCTIONS

_ELEMENTWISE = {f"qnn.{name}" for name in ("add", "mul", "requantize", "sub", "table", *FUNCTIONS)}
_STORAGES = ("int8", "uint8")


def move_reshapes(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with reshapes after elementwise operators, and the names of values that were computed from
    reshaped tensors.
    """
    mover = _Mover(graph.main_of(module))
    moved = mover.run()
    return (moved if mover.moved else module), mover.moved


class _Mover:
    """Rewrites the function binding by binding."""

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self.moved: list[str] = []
        self._builder = relax.BlockBuilder()
        self._values: dict[relax.Var, relax.Expr] = {}  # old variable -> new expression
        self._sources: dict[relax.Expr, relax.Expr] = {}  # new expression -> what it is reshaped from

    def run(self) -> tvm.IRModule:
        params = [relax.Var(param.name, param.ty) for param in self.function.params]
        self._values.update(zip(self.function.params, params, strict=True))
        with self._builder.function("main", params):
            with self._builder.dataflow():
                for var, value, operation in graph.operations(self.function):
                    self._values[var] = self._rewrite(str(var.name), value, operation)
                results = graph.results_of(self.function)
                outputs = [self._builder.emit_output(graph.substitute(result, self._values)) for result in results]
            self._builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return self._builder.get()

    def _rewrite(self, name: str, value: relax.Expr, operation: graph.Found) -> relax.Expr:
        if not isinstance(value, relax.Call):
            return graph.substitute(value, self._values)
        args = [graph.substitute(arg, self._values) for arg in value.args]
        if getattr(value.op, "name", "") == "relax.reshape":
            return self._reshaped(self._sources.get(args[0], args[0]), graph.shape_of(value), name)
        before = self._before(value, args, operation)
        if before is None:
            return self._emit(graph.with_args(value, args), name)
        self.moved.append(name)
        return self._reshaped(self._emit(before, name), graph.shape_of(value), f"{name}_reshaped")

    def _before(self, call: relax.Call, args: list[relax.Expr], operation: graph.Found) -> relax.Call | None:
        """Returns a call that computes the elements of `call` from the tensors before their reshapes. Returns None
        if that is impossible.
        """
        if not args or self._sources.keys().isdisjoint(args):
            return None
        if getattr(call.op, "name", "") == "relax.strided_slice":
            return _of_channels(call, self._sources[args[0]])
        if operation is None or operation.name not in _ELEMENTWISE or not operation.storages <= set(_STORAGES):
            return None
        sources = [_alone(arg) if value_of(arg) is not None else self._sources.get(arg) for arg in args]
        if any(source is None for source in sources) or not _per_tensor(operation):
            return None
        shapes = [graph.shape_of(arg) for arg in args if value_of(arg) is None]
        extents = {graph.shape_of(source) for source in sources if value_of(source) is None}
        if len(extents) != 1 or any(shape != graph.shape_of(call) for shape in shapes):
            return None
        return graph.with_args(call, sources)

    def _reshaped(self, source: relax.Expr, shape: Sequence[int], name: str) -> relax.Expr:
        if graph.shape_of(source) == tuple(shape):
            return source
        var = self._emit(relax.op.reshape(source, list(shape)), name)
        if isinstance(source, relax.Var) and str(source.ty.dtype) in _STORAGES:
            self._sources[var] = source
        return var

    def _emit(self, expr: relax.Expr, name: str) -> relax.Var:
        return graph.emit(self._builder, expr, name)


def _per_tensor(operation: Operation) -> bool:
    names = [name for name in operation.call.attrs.keys() if name.endswith("_type")]  # noqa: SIM118
    return all(operation.quantized(name).is_per_tensor for name in names)


def _alone(arg: relax.Expr) -> relax.Expr | None:
    """If `arg` is a constant whose elements are all equal, returns it as a single element; otherwise None."""
    value = value_of(arg)
    if value is None or value.size == 0 or not (value == value.flat[0]).all():
        return None
    return relax.const(value.reshape(-1)[:1], value.dtype.name)


def _of_channels(call: relax.Call, source: relax.Expr) -> relax.Call | None:
    """Returns a slice of a reshaped tensor as a slice of the last axis of the tensor before its reshape.

    The sliced axis and the axes after it together form that last axis, so the slice is one contiguous part of each row.
    """
    before, after = graph.shape_of(call.args[0]), graph.shape_of(call)
    axes, begins, _, *steps = ([int(field.value) for field in arg.fields] for arg in call.args[1:])
    cut = [axis for axis in range(len(before)) if before[axis] != after[axis]]
    if len(cut) != 1 or any(step != 1 for step in (steps[0] if steps else ())):
        return None
    (axis,) = cut
    *rows, channels = graph.shape_of(source)
    inner = math.prod(before[axis + 1 :])
    if math.prod(before[:axis]) != math.prod(rows) or before[axis] * inner != channels:
        return None
    begin = slice(begins[axes.index(axis)], None).indices(before[axis])[0] * inner
    return relax.op.strided_slice(source, [len(rows)], [begin], [begin + after[axis] * inner], [1])
