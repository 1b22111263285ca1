"""Makes a kernel leave out the elements beyond the length of the input, which nothing reads.

A kernel computes whole tensors: its loops have constant extents. If an axis of its output has the length of the input,
the iterations that only write elements beyond the length can be left out. Which ones these are is found by evaluating
the offsets of all stores for all iterations, so it holds for every kernel, however it divides its work.

Two changes are made:
- An outermost loop whose iterations write ascending positions, once or several times over, runs only the first
  iterations of each pass. So the threads share the remaining iterations equally. An inner loop is shortened too, if it
  writes the same positions in each iteration of the outer loops.
- In other loops, a condition is added around the body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad

from service.compiler.kernels.trimming.ascending import Ascending
from service.compiler.kernels.trimming.nodes import intrinsic, loop_variables, reads, replaced, walk, with_body
from service.core.models.arrays import Array

Integers = NDArray[np.int64]

_FAR = 1 << 40  # a position that no store writes
_MOST_POINTS = 1 << 22  # iterations of nested loops; larger kernels stay whole
_PREFETCH = "llvm.prefetch"


@dataclass(frozen=True)
class Along:
    """An axis of a flat tensor that has the length of the input.

    Attributes:
        stride: the number of elements from one position to the next.
        extent: the number of positions.
        origin: the offset of the first element.
        block: the number of positions in one step of `stride`, as channels in blocks are. `extent` counts blocks then.
    """

    stride: int
    extent: int
    origin: int = 0
    block: int = 1

    def position(self, offset: Any) -> Any:
        """Returns the position of an element; the first one of its block."""
        return (offset - self.origin) // self.stride % self.extent * self.block


@dataclass(frozen=True)
class Written:
    """An output of a kernel.

    Attributes:
        axes: the axes along which elements beyond the length need not be written.
        is_scratch: true for memory that only the kernel itself reads.
    """

    axes: tuple[Along, ...] = ()
    is_scratch: bool = False


def trimmed(
    function: tirx.PrimFunc, sources: int, constants: Sequence[Array], outputs: Sequence[Written]
) -> tirx.PrimFunc | None:
    """Returns `function` without the iterations that only write elements beyond the length. It has another parameter,
    after the sources: the length, `[1]` int32, from 1 to the extent of the axes. Returns None if no iteration can be
    left out.

    Args:
        sources: the number of parameters before the constants.
        constants: the values of the parameters between the sources and the outputs.
        outputs: the last parameters, in order.
    """
    if not any(output.axes for output in outputs):
        return None
    parameters = list(function.params)
    values = dict(zip(parameters[sources : sources + len(constants)], constants, strict=True))
    written = dict(zip(parameters[sources + len(constants) :], outputs, strict=True))
    memory = tirx.decl_buffer((1,), "int32", "length_", data_alignment=64)
    length = tirx.Var("length", "int32")
    evaluation = _Evaluation(parameters[:sources], values, written, length, reads(function.body))
    try:
        body = evaluation.visit(function.body)
    except _TooLarge:
        return None
    if not evaluation.is_changed:
        return None
    body = tirx.SeqStmt([tirx.Bind(length, tirx.BufferLoad(memory, [tirx.const(0, "int32")])), body])
    made = tirx.PrimFunc([*parameters[:sources], memory, *parameters[sources:]], body)
    for name, value in function.attrs.items():
        made = made.with_attr(name, value)
    return made


class _TooLarge(Exception):
    """The loops have too many iterations to be evaluated."""


@dataclass
class _Loop:
    """A loop that is being evaluated. A *point* is an iteration of the loop in an iteration of each outer loop.

    Attributes:
        parents: for each point, the index of the point of the next outer loop.
        least: for each kind of axis, the smallest position that each point writes.
        examples: for each kind of axis, the offset that is written first, as an expression of loop variables.
        loads: the number of loads from each buffer in the body.
    """

    parents: Integers
    loads: Counter[tirx.Buffer]
    least: dict[int, Integers] = field(default_factory=dict)
    examples: dict[int, tuple[Along, tirx.PrimExpr]] = field(default_factory=dict)

    def write(self, kind: int, points: Integers, positions: Integers) -> None:
        least = self.least.setdefault(kind, np.full(len(self.parents), _FAR))
        np.minimum.at(least, points, positions)


class _Evaluation:
    def __init__(
        self,
        sources: Sequence[tirx.Buffer],
        constants: Mapping[tirx.Buffer, Array],
        written: Mapping[tirx.Buffer, Written],
        length: tirx.Var,
        loads: Counter[tirx.Buffer],
    ) -> None:
        self._constants, self._written, self._length, self._loads = constants, written, length, loads
        self._read_only = {*sources, *constants}
        self._kinds = max(len(each.axes) for each in written.values())
        self._loops: list[_Loop] = []
        self._depths: dict[tirx.Buffer, int] = {}  # buffers of the kernel -> the number of loops around the allocation
        self._numbers: dict[tirx.Var, Integers | None] = {}  # the values of variables by point; None if unknown
        self._limits: dict[tirx.Var, int] = {}  # upper limits of variables whose values are unknown
        self._inlined: dict[tirx.Var, tirx.PrimExpr] = {}  # variables as expressions of loop variables
        self._points = 1
        self.is_changed = False

    # -- statements

    def visit(self, stmt: Any) -> Any:
        """Evaluates the stores in `stmt`. Returns it without the iterations that are not needed."""
        if isinstance(stmt, tirx.SeqStmt):
            return tirx.SeqStmt([self.visit(each) for each in stmt.seq])
        if isinstance(stmt, tirx.AttrStmt):
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self.visit(stmt.body))
        if isinstance(stmt, tirx.For):
            return self._loop(stmt)
        if isinstance(stmt, tirx.IfThenElse):
            otherwise = None if stmt.else_case is None else self.visit(stmt.else_case)
            return tirx.IfThenElse(stmt.condition, self.visit(stmt.then_case), otherwise)
        if isinstance(stmt, tirx.AllocBuffer):
            self._depths[stmt.buffer] = len(self._loops)
        elif isinstance(stmt, tirx.Bind):
            self._bind(stmt.var, stmt.value)
        elif isinstance(stmt, tirx.BufferStore):
            self._store(stmt.buffer, stmt.indices[0])
        elif isinstance(stmt, tirx.Evaluate):
            self._evaluate(stmt.value)
        else:
            raise _TooLarge  # a statement that no kernel has
        return stmt

    def _bind(self, var: tirx.Var, value: tirx.PrimExpr) -> None:
        is_integer = str(var.ty.dtype) in ("int32", "int64")
        self._numbers[var] = self._number(value) if is_integer else None
        if self._numbers[var] is not None:
            self._inlined[var] = replaced(value, self._inlined)
        elif is_integer and (most := self._most(value)) is not None:
            self._limits[var] = most

    def _loop(self, stmt: tirx.For) -> tirx.For:
        if not _writes(stmt.body, self._written):
            self._skim(stmt)
            return stmt
        extents = self._extents(stmt.extent)
        if extents is None:
            self._skim(stmt)
            return stmt
        points = int(extents.sum())
        if points > _MOST_POINTS:
            raise _TooLarge
        parents = np.repeat(np.arange(self._points), extents)
        begins = np.repeat(np.cumsum(extents) - extents, extents)
        before, count = self._numbers, self._points
        self._numbers = {var: None if each is None else each[parents] for var, each in before.items()}
        self._numbers[stmt.loop_var] = np.arange(points) - begins
        self._points = points
        loop = _Loop(parents, reads(stmt.body))
        self._loops.append(loop)
        body = self.visit(stmt.body)
        made = self._trimmed(stmt, body, loop)
        self._loops.pop()
        self._numbers, self._points = before, count
        return made

    def _skim(self, stmt: Any) -> None:
        """Notes the stores of a statement that is not changed. Their offsets are unknown."""

        def allocate(node: tirx.AllocBuffer) -> None:
            self._depths[node.buffer] = len(self._loops)

        walk(
            stmt,
            (tirx.AllocBuffer, allocate),
            (tirx.BufferStore, lambda node: self._store(node.buffer, None)),
            (tirx.Evaluate, lambda node: self._evaluate(node.value)),
        )

    def _evaluate(self, call: Any) -> None:
        """An instruction may write to each address that it is given, unless it is a prefetch."""
        if isinstance(call, Call) and intrinsic(call) == _PREFETCH:
            return

        def note(node: TensorLoad) -> None:
            if node.source not in self._read_only:
                self._store(node.source, None)

        walk(call, (TensorLoad, note))

    def _store(self, buffer: tirx.Buffer, offset: tirx.PrimExpr | None) -> None:
        written = self._written.get(buffer)
        depth = 0 if written is not None else self._depths[buffer]
        if written is None or not written.axes:
            if written is not None and written.is_scratch:
                depth = self._scratch_depth(buffer)
            # The loops inside the allocation cannot be changed along any axis: a later statement may read the element.
            for kind in range(self._kinds):
                self._note(kind, np.zeros(self._points, np.int64), depth)
            return
        numbers = None if offset is None else self._lanes(offset)
        first = offset.base if isinstance(offset, tirx.Ramp) else offset
        for kind in range(self._kinds):
            if numbers is None or kind >= len(written.axes):
                self._note(kind, np.zeros(self._points, np.int64), 0)
                continue
            along = written.axes[kind]
            self._note(kind, along.position(numbers).min(axis=1), 0)
            for loop in self._loops:
                loop.examples.setdefault(kind, (along, replaced(first, self._inlined)))

    def _scratch_depth(self, buffer: tirx.Buffer) -> int:
        """Returns the number of loops whose bodies contain all loads from scratch memory."""
        return sum(loop.loads[buffer] == self._loads[buffer] for loop in self._loops)

    def _note(self, kind: int, positions: Integers, depth: int) -> None:
        """Adds positions that each point of the innermost loop writes, to all loops inside the first `depth` ones."""
        points = np.arange(self._points)
        for loop in reversed(self._loops[depth:]):
            loop.write(kind, points, positions)
            points = loop.parents[points]

    # -- what is left of a loop

    def _trimmed(self, stmt: tirx.For, body: Any, loop: _Loop) -> tirx.For:
        for kind, least in loop.least.items():
            if kind not in loop.examples or not _varies(least, loop.parents):
                continue
            ascending = self._ascending(stmt, least)
            if ascending is not None and not ascending.more:
                self.is_changed = True
                return ascending.loop(stmt, body, self._length)
            along, offset = loop.examples[kind]
            inner = loop_variables(body)
            position = along.position(replaced(offset, dict.fromkeys(inner, tirx.const(0, "int32"))))
            simple = sym.Analyzer().simplify(position)
            numbers = self._number(simple)
            if numbers is not None and (numbers <= least).all():
                self.is_changed = True
                body = tirx.IfThenElse(simple < self._length, body, None)
            if ascending is not None:
                self.is_changed = True
                return ascending.loop(stmt, body, self._length)
        return with_body(stmt, body)

    def _ascending(self, stmt: tirx.For, least: Integers) -> Ascending | None:
        """Returns the pattern of the smallest positions that the iterations of a loop write. An inner loop must write
        the same positions, once, in each iteration of the outer loops.
        """
        if not isinstance(stmt.extent, tirx.IntImm):
            return None
        if len(self._loops) == 1:
            return Ascending.of(least)
        apart = least.reshape(-1, int(stmt.extent))
        found = Ascending.of(apart[0]) if (apart == apart[0]).all() else None
        return found if found is not None and found.period == int(stmt.extent) else None

    # -- expressions

    def _lanes(self, offset: tirx.PrimExpr) -> Integers | None:
        """Returns the offsets that a store writes, `[points, lanes]`; None if they are unknown."""
        if not isinstance(offset, tirx.Ramp):
            numbers = self._number(offset)
            return None if numbers is None else numbers[:, np.newaxis]
        base, stride = self._number(offset.base), self._number(offset.stride)
        if base is None or stride is None:
            return None
        return base[:, np.newaxis] + stride[:, np.newaxis] * np.arange(int(offset.lanes))

    def _extents(self, expr: Any) -> Integers | None:
        """Returns the extent of a loop for each point, or an upper limit of it; None if there is none."""
        numbers = self._number(expr)
        if numbers is None and (most := self._most(expr)) is not None:
            numbers = np.full(self._points, most, np.int64)
        return numbers

    def _most(self, expr: Any) -> int | None:
        """Returns an upper limit of an integer expression; None if there is none."""
        if (numbers := self._number(expr)) is not None:
            return int(numbers.max(initial=0))
        if isinstance(expr, tirx.Var):
            return self._limits.get(expr)
        if isinstance(expr, tirx.Min):
            known = [each for each in (self._most(expr.a), self._most(expr.b)) if each is not None]
            return min(known, default=None)
        if isinstance(expr, tirx.FloorDiv | tirx.Add) and isinstance(expr.b, tirx.IntImm):
            most = self._most(expr.a)
            return None if most is None else int(_OPERATIONS[type(expr)](most, int(expr.b)))
        return None

    def _number(self, expr: Any) -> Integers | None:
        """Returns the value of an integer expression for each point; None if it is unknown."""
        if isinstance(expr, int | tirx.IntImm):
            return np.full(self._points, int(expr), np.int64)
        if isinstance(expr, tirx.Var):
            return self._numbers.get(expr)
        if isinstance(expr, TensorLoad):
            return self._constant(expr)
        if isinstance(expr, tirx.Cast):
            return self._number(expr.value)
        operation = _OPERATIONS.get(type(expr))
        if operation is None:
            return None
        one, other = self._number(expr.a), self._number(expr.b)
        return None if one is None or other is None else operation(one, other)

    def _constant(self, load: TensorLoad) -> Integers | None:
        values = self._constants.get(load.source)
        places = None if values is None or values.dtype.kind not in "iu" else self._number(load.indices[0])
        return None if values is None or places is None else values.reshape(-1)[places].astype(np.int64)


_OPERATIONS: dict[type, Any] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
}


def _varies(least: Integers, parents: Integers) -> bool:
    """Returns true if iterations of one loop, in the same iteration of the outer loops, begin at several positions."""
    lowest = np.full(int(parents.max(initial=0)) + 1, _FAR)
    np.minimum.at(lowest, parents, least)
    return bool((least != lowest[parents]).any())


def _writes(body: Any, written: Mapping[tirx.Buffer, Written]) -> bool:
    """Returns true if `body` writes an output that is not scratch memory."""
    stored: list[tirx.Buffer] = []
    walk(body, (tirx.BufferStore, lambda node: stored.append(node.buffer)))
    return any(buffer in written and not written[buffer].is_scratch for buffer in stored)
