"""Joins: replaces several successive reshapes and permutations by one permutation between two reshapes.

Frameworks regroup an image in steps that are cheap in their own layout. MobileViT's patches are two reshapes and two
permutations of `[N, C, H, W]`. The importer adds a permutation before and after, because kernels have channels last.
Together, the steps only move whole pixels. The pass divides the source's axes as finely as any step divides them and
tracks these parts, so that the intermediate steps need not be computed.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. Reshapes and permutations are unchanged if they contain fewer than two permutations,
    or no reshape between two permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import relax

from service.compiler.qnn import graph

Factor = tuple[int, int]  # a factor of an axis: its extent, and its stride in the source


@dataclass(frozen=True)
class _Move:
    """A tensor that results from reshapes and permutations ("moves") of another tensor.

    Attributes:
        source: the other tensor, an expression of the new function.
        axes: the factors of each axis, outermost first; factors of 1 are left out.
        permuted: true if there is a permutation.
        regrouped: true if a reshape follows a permutation.
        worthwhile: true if another permutation follows that reshape.
    """

    source: relax.Expr
    axes: tuple[tuple[Factor, ...], ...]
    permuted: bool = False
    regrouped: bool = False
    worthwhile: bool = False

    @staticmethod
    def of(source: relax.Expr) -> _Move:
        shape, stride, axes = graph.shape_of(source), 1, []
        for extent in reversed(shape):
            axes.append(((extent, stride),) if extent != 1 else ())
            stride *= extent
        return _Move(source, tuple(reversed(axes)))

    def permute(self, order: Sequence[int]) -> _Move:
        axes = tuple(self.axes[axis] for axis in order)
        return replace(self, axes=axes, permuted=True, worthwhile=self.worthwhile or self.regrouped)

    def reshape(self, shape: Sequence[int]) -> _Move | None:
        """Returns the tensor after a reshape, or None if a new axis would need a fraction of a factor that cannot be
        split evenly.
        """
        left = [factor for axis in self.axes for factor in axis]
        axes = []
        for extent in shape:
            own: list[Factor] = []
            while extent > 1:
                if not left:
                    return None
                size, stride = left.pop(0)
                if extent % size == 0:
                    own.append((size, stride))
                    extent //= size
                elif size % extent == 0:
                    own.append((extent, stride * (size // extent)))
                    left.insert(0, (size // extent, stride))
                    extent = 1
                else:
                    return None
            axes.append(tuple(own))
        return replace(self, axes=tuple(axes), regrouped=self.regrouped or self.permuted) if not left else None

    @property
    def factors(self) -> list[Factor]:
        """All factors in order. Two adjacent factors that are adjacent in the source too are merged into one."""
        joined: list[Factor] = []
        for size, stride in (factor for axis in self.axes for factor in axis):
            if joined and joined[-1][1] == size * stride:
                joined[-1] = joined[-1][0] * size, stride
            else:
                joined.append((size, stride))
        return joined


def _after(moved: _Move, value: relax.Call) -> _Move | None:
    if value.op.name == "relax.reshape":
        return moved.reshape(graph.shape_of(value))
    rank, axes = len(moved.axes), value.attrs.axes
    return moved.permute(range(rank)[::-1] if axes is None else [int(axis) % rank for axis in axes])


def join_moves(module: tvm.IRModule) -> tvm.IRModule:
    """Returns `module` with each group of reshapes and permutations replaced by one permutation between two
    reshapes.
    """
    return _Joiner(graph.main_of(module)).run()


class _Joiner:
    """Rewrites the function binding by binding. A reshape or permutation is emitted only when another type of operator
    reads it.
    """

    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self._builder = relax.BlockBuilder()
        self._values: dict[relax.Var, relax.Expr] = {}  # old variable -> new expression
        self._moves: dict[relax.Var, tuple[relax.Call, _Move]] = {}
        self._names: dict[relax.Var, relax.Var] = {}  # alias -> the variable that it renames

    def run(self) -> tvm.IRModule:
        params = [relax.Var(param.name, param.ty) for param in self.function.params]
        self._values.update(zip(self.function.params, params, strict=True))
        with self._builder.function("main", params):
            with self._builder.dataflow():
                for var, value in graph.bindings(self.function):
                    if isinstance(value, relax.Var):
                        self._names[var] = self._names.get(value, value)
                        continue
                    moved = self._move_of(value)
                    if moved is not None:
                        self._moves[var] = value, moved
                    elif isinstance(value, relax.Call):
                        args = [graph.substitute(arg, self) for arg in value.args]
                        self._values[var] = self._emit(graph.with_args(value, args), str(var.name))
                    else:
                        self._values[var] = graph.substitute(value, self)
                results = graph.results_of(self.function)
                outputs = [self._builder.emit_output(graph.substitute(result, self)) for result in results]
            self._builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return self._builder.get()

    def _move_of(self, value: relax.Expr) -> _Move | None:
        name = str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""
        if name not in ("relax.reshape", "relax.permute_dims") or not isinstance(value.args[0], relax.Var):
            return None
        if 0 in graph.shape_of(value):
            return None
        operand = self._names.get(value.args[0], value.args[0])
        _, known = self._moves.get(operand, (None, None))
        after = None if known is None else _after(known, value)
        return _after(_Move.of(self[operand]), value) if after is None else after

    def __getitem__(self, var: relax.Var) -> relax.Expr:
        var = self._names.get(var, var)
        if var not in self._values:
            value, moved = self._moves[var]
            self._values[var] = self._emit_move(str(var.name), value, moved)
        return self._values[var]

    def _emit_move(self, name: str, value: relax.Call, moved: _Move) -> relax.Expr:
        if not moved.worthwhile:
            args = [graph.substitute(arg, self) for arg in value.args]
            return self._emit(graph.with_args(value, args), name)
        factors = moved.factors
        in_source = sorted(factors, key=lambda factor: -factor[1])
        if factors == in_source:
            return self._reshaped(moved.source, graph.shape_of(value), name)
        split = self._reshaped(moved.source, [size for size, _ in in_source], f"{name}_split")
        order = [in_source.index(factor) for factor in factors]
        split = self._emit(relax.op.permute_dims(split, order), f"{name}_moved")
        return self._reshaped(split, graph.shape_of(value), name)

    def _reshaped(self, expr: relax.Expr, shape: Sequence[int], name: str) -> relax.Expr:
        if graph.shape_of(expr) == tuple(shape):
            return expr
        return self._emit(relax.op.reshape(expr, list(shape)), name)

    def _emit(self, expr: relax.Expr, name: str) -> relax.Var:
        return graph.emit(self._builder, expr, name)
