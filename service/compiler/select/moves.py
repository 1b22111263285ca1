"""Finds tensors that only contain elements of other tensors (`kernels.moves`).

A *move* is a reshape, a permutation, a slice or a concatenation. If only moves read the result of a move, the result is
never written: the moves copy from the tensors that the elements come from. In a chain of moves, only the first one may
be a concatenation. So if a network splits and concatenates channels in each of its units, the channels are written once
in each unit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.kernels.group import shape_of
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.moves import MOST_ELEMENTS, Integers
from service.compiler.qnn import graph
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.plain import PLAIN

_JOINS = ("relax.qnn.concatenate", "relax.concat")
_MOVES = (*_JOINS, "relax.permute_dims", "relax.reshape", "relax.strided_slice")
_DTYPES = (*BIAS, "float32", "int32")


@dataclass(frozen=True)
class Part:
    """A tensor whose elements are copied.

    Attributes:
        source: a variable or a constant.
        join: the `qnn.concatenate` that has the part as an operand, if any.
        index: the index of the part among the operands of `join`.
    """

    source: relax.Expr
    join: Operation | None
    index: int


@dataclass(frozen=True, eq=False)
class Movement:
    """Describes a tensor by the elements of other tensors that it consists of.

    Attributes:
        parts: the tensors that the elements come from.
        elements: for each element of the tensor, its index among the elements of all parts, concatenated.
        operators: the names of the moves, for reports.
        join: the concatenation among the moves, if any.
    """

    parts: tuple[Part, ...]
    elements: Integers
    operators: str
    join: relax.Var | None

    @property
    def moves_nothing(self) -> bool:
        """Returns true if the tensor consists of all elements of one part in the same order, so that nothing has to be
        copied.
        """
        alone = len(self.parts) == 1 and self.parts[0].join is None
        return alone and np.array_equal(self.elements, np.arange(elements_of(self.parts[0].source)))


class Moves:
    """The moves of a model.

    Attributes:
        inner: the tensors that only other moves read, so that they need not be written.
    """

    def __init__(self, bindings: Sequence[tuple[relax.Var, relax.Expr]], results: Collection[relax.Var]) -> None:
        self._values = {var: value for var, value in bindings if _moves(var, value)}
        self.readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
        for var, value in bindings:
            for read in graph.variables(value):
                self.readers[read].append(var)
        self.inner: set[relax.Var] = set()
        joined: set[relax.Var] = set()
        for var, value in self._values.items():
            own = [arg for arg in _tensors(value) if arg in self.inner]
            if _name(value) in _JOINS or not joined.isdisjoint(own):
                joined.add(var)
            reading = self.readers[var]
            names = {_name(self._values[reader]) for reader in reading if reader in self._values}
            on = bool(reading) and all(reader in self._values for reader in reading) and var not in results
            if on and not (var in joined and not names.isdisjoint(_JOINS)):
                self.inner.add(var)

    @property
    def joins(self) -> list[relax.Var]:
        """Returns the concatenations that are not QNN operators."""
        return [var for var, value in self._values.items() if _name(value) == "relax.concat"]

    def __contains__(self, var: relax.Var) -> bool:
        return var in self._values

    def __iter__(self) -> Any:
        return iter(self._values)

    def ends(self, var: relax.Var) -> list[relax.Var]:
        """Returns the last tensor of every chain of moves that begins at `var`. If `var` is not in `inner`, the only
        such tensor is `var` itself.
        """
        if var not in self.inner:
            return [var]
        return [end for reader in dict.fromkeys(self.readers[var]) for end in self.ends(reader)]

    def movement(self, var: relax.Var, written: Collection[relax.Var]) -> Movement:
        """Describes where the elements of `var` come from: tensors that are not results of moves, or that are in
        `written`.
        """
        found = _Found(self, written)
        elements = found.elements(var, inside=True)
        names = [_name(self._values[each]).removeprefix("relax.").removeprefix("qnn.") for each in found.moves]
        return Movement(tuple(found.parts), np.asarray(elements).reshape(-1), "+".join(names), found.join)

    def value(self, var: relax.Var) -> relax.Call:
        return self._values[var]

    def sources(self, var: relax.Var) -> list[relax.Expr]:
        """Returns the operands of the move that computes `var`."""
        return _tensors(self._values[var])


class _Found:
    """Follows moves from a tensor back to its parts."""

    def __init__(self, moves: Moves, written: Collection[relax.Var]) -> None:
        self._moves, self._written = moves, written
        self.parts: list[Part] = []
        self.moves: list[relax.Var] = []
        self.join: relax.Var | None = None
        self._elements = 0

    def elements(self, expr: relax.Expr, *, inside: bool, join: Operation | None = None, index: int = 0) -> Any:
        """Returns, for each element of `expr`, its index among the elements of `parts`.

        If a move computes `expr`, the move's operands may become parts instead of `expr` itself. If `inside` is false,
        they do so only if `expr` is one of `Moves.inner`.
        """
        moved = isinstance(expr, relax.Var) and expr in self._moves and expr not in self._written
        if not (moved and (inside or expr in self._moves.inner)):
            first, self._elements = self._elements, self._elements + elements_of(expr)
            self.parts.append(Part(expr, join, index))
            return np.arange(first, self._elements, dtype=np.int64).reshape(shape_of(expr))
        value = self._moves.value(expr)
        if _name(value) not in _JOINS:
            source = self.elements(value.args[0], inside=False, join=join, index=index)
            self.moves.append(expr)
            return PLAIN[_name(value)](value, source, *value.args[1:])
        operation = Operation(value) if _name(value) == "relax.qnn.concatenate" else None
        axis = operation.integer("axis") if operation is not None else int(value.attrs.axis)
        parts = [
            self.elements(part, inside=False, join=operation, index=number)
            for number, part in enumerate(value.args[0].fields)
        ]
        self.moves.append(expr)
        self.join = expr
        return np.concatenate(parts, axis)


def elements_of(expr: relax.Expr) -> int:
    return math.prod(shape_of(expr))


def _moves(var: relax.Var, value: relax.Expr) -> bool:
    """Returns true if `value` is a move that kernels support."""
    if _name(value) not in _MOVES or not 0 < elements_of(var) <= MOST_ELEMENTS:
        return False
    tensors = _tensors(value)
    known = all(isinstance(arg, relax.Var) or value_of(arg) is not None for arg in tensors)
    return known and all(str(each.ty.dtype) in _DTYPES for each in (var, *tensors))


def _tensors(value: relax.Call) -> list[relax.Expr]:
    first = value.args[0]
    return list(first.fields) if isinstance(first, relax.Tuple) else [first]


def _name(value: relax.Expr) -> str:
    return str(getattr(value.op, "name", "")) if isinstance(value, relax.Call) else ""
