"""Which tensors are only moved elements of others (`kernels.moves`), through reshapes, permutations, slices and joins.

What is moved on by every operator that reads it is never written. A concatenation is the first move of a chain only, so
that what networks split and join again, unit by unit, is written once in each.
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
    """A tensor whose elements are moved.

    Attributes:
        source: a variable, or a constant.
        join: the `qnn.concatenate` that takes it, if it goes through one; it is number `place` of the parts.
    """

    source: relax.Expr
    join: Operation | None
    place: int


@dataclass(frozen=True, eq=False)
class Movement:
    """How a tensor is made.

    Attributes:
        parts: what its elements are of.
        elements: for each its number among those of all parts, one behind the other.
        operators: of the moves, for reports.
        join: the concatenation among the moves.
    """

    parts: tuple[Part, ...]
    elements: Integers
    operators: str
    join: relax.Var | None

    @property
    def moves_nothing(self) -> bool:
        """Whether it is a part as it lies, seen in another shape."""
        alone = len(self.parts) == 1 and self.parts[0].join is None
        return alone and np.array_equal(self.elements, np.arange(elements_of(self.parts[0].source)))


class Moves:
    """The moves of a model's bindings.

    Attributes:
        inner: tensors that only other moves read, so that they need not be written.
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
        """Those that are no operators of the dialect."""
        return [var for var, value in self._values.items() if _name(value) == "relax.concat"]

    def __contains__(self, var: relax.Var) -> bool:
        return var in self._values

    def __iter__(self) -> Any:
        return iter(self._values)

    def ends(self, var: relax.Var) -> list[relax.Var]:
        """What is moved on from `var` and written: itself, where it is not `inner`."""
        if var not in self.inner:
            return [var]
        return [end for reader in dict.fromkeys(self.readers[var]) for end in self.ends(reader)]

    def movement(self, var: relax.Var, written: Collection[relax.Var]) -> Movement:
        """How `var` is made of what is not moved, or is `written`."""
        found = _Found(self, written)
        elements = found.elements(var, inside=True)
        names = [_name(self._values[each]).removeprefix("relax.").removeprefix("qnn.") for each in found.moves]
        return Movement(tuple(found.parts), np.asarray(elements).reshape(-1), "+".join(names), found.join)

    def value(self, var: relax.Var) -> relax.Call:
        return self._values[var]

    def sources(self, var: relax.Var) -> list[relax.Expr]:
        """What the last of the moves that make `var` takes."""
        return _tensors(self._values[var])


class _Found:
    """Walks from a tensor to its parts."""

    def __init__(self, moves: Moves, written: Collection[relax.Var]) -> None:
        self._moves, self._written = moves, written
        self.parts: list[Part] = []
        self.moves: list[relax.Var] = []
        self.join: relax.Var | None = None
        self._elements = 0

    def elements(self, expr: relax.Expr, *, inside: bool, join: Operation | None = None, place: int = 0) -> Any:
        """The numbers of the elements of `expr`; `inside`: whether a move is followed to what it moves."""
        moved = isinstance(expr, relax.Var) and expr in self._moves and expr not in self._written
        if not (moved and (inside or expr in self._moves.inner)):
            first, self._elements = self._elements, self._elements + elements_of(expr)
            self.parts.append(Part(expr, join, place))
            return np.arange(first, self._elements, dtype=np.int64).reshape(shape_of(expr))
        value = self._moves.value(expr)
        if _name(value) not in _JOINS:
            source = self.elements(value.args[0], inside=False, join=join, place=place)
            self.moves.append(expr)
            return PLAIN[_name(value)](value, source, *value.args[1:])
        operation = Operation(value) if _name(value) == "relax.qnn.concatenate" else None
        axis = operation.integer("axis") if operation is not None else int(value.attrs.axis)
        parts = [
            self.elements(part, inside=False, join=operation, place=number)
            for number, part in enumerate(value.args[0].fields)
        ]
        self.moves.append(expr)
        self.join = expr
        return np.concatenate(parts, axis)


def elements_of(expr: relax.Expr) -> int:
    return math.prod(shape_of(expr))


def _moves(var: relax.Var, value: relax.Expr) -> bool:
    """Whether `value` only moves elements, as far as a kernel may."""
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
