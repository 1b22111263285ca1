"""Reduces the elements of a row to one value. Partial values are in registers, and are folded to one value at the end.

A reduction processes the columns of a row in steps of 16. It has 16 or 8 partial values, independently of the width of
vectors, so that the order of operations is the same on every target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, Program, Register, splat
from service.compiler.kernels.rows import Step
from service.compiler.kernels.simd.rows.values import Vectors
from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.numerics.extremes import larger, smaller
from service.compiler.qnn.numerics.sums.moments import rounded_squares
from service.compiler.qnn.ops.real import EIGHTS, FOLDS, PACKETS, PARTIAL_SUMS

# Takes (vectors, partial values, new elements), and returns new partial values.
Join = Callable[[Vectors, Expr, Expr], Expr]


@dataclass(frozen=True)
class _InLanes:
    """A reduction with 16 partial values.

    Attributes:
        identity: the value for columns beyond the end of a row, which does not change the partial values.
        kind: the type of the values.
    """

    join: Join
    identity: float
    kind: str = "float32"


_IN_LANES: Mapping[str, _InLanes] = {
    "relax.max": _InLanes(lambda _, a, b: larger(a, b), -math.inf),
    "relax.min": _InLanes(lambda _, a, b: smaller(a, b), math.inf),
    "qnn.real_mean": _InLanes(lambda _, a, b: a + b, 0.0, "float64"),
    "qnn.real_sum": _InLanes(lambda _, a, b: a + b, 0.0),
}


def reduction_of(program: Program, lanes: int, step: Step) -> RowReduction:
    """Returns the reduction of a step for one row.

    Args:
        lanes: the lanes of a vector.
    """
    if step.name == "qnn.real_squares":
        return _Squares(program, lanes, step)
    if step.name == "qnn.real_sum" and step.operation is not None and str(step.operation.attr("order")) == PACKETS:
        return _Packets(program, lanes, step)
    return _Lanes(program, lanes, step, _IN_LANES[step.name])


class RowReduction:
    """The partial values of the reduction of one row."""

    def __init__(self, program: Program, lanes: int, step: Step) -> None:
        self.program, self.lanes = program, lanes
        self.columns = int(step.call.args[0].ty.shape[-1])

    def add(self, element: Expr, vector: int, columns: int) -> None:
        """Adds vector number `vector` of a step that has `columns` columns. Elements beyond the last column are
        ignored.
        """
        raise NotImplementedError

    def folded(self) -> Expr:
        """Returns the value of the row. Call it after all vectors were added."""
        raise NotImplementedError

    def _registers(self, count: int, lanes: int, value: float, kind: str) -> list[Register]:
        registers = [self.program.register(kind, lanes) for _ in range(count)]
        for register in registers:
            register.value = splat(tirx.const(value, kind), lanes)
        return registers

    def _concatenate(self, registers: Sequence[Register], count: int, kind: str) -> Expr:
        """Concatenates the lanes of registers to one vector of `count` lanes."""
        values = [register.value for register in registers]
        return self.program.bind(_shuffled(values, range(count)), f"{kind}x{count}")


class _Lanes(RowReduction):
    """A reduction with 16 partial values (`_InLanes`). The partial values are folded in the order of
    `ops.real.FOLDS`.
    """

    def __init__(self, program: Program, lanes: int, step: Step, form: _InLanes) -> None:
        super().__init__(program, lanes, step)
        self._step, self._form = step, form
        self._sums = self._registers(PARTIAL_SUMS // lanes, lanes, form.identity, form.kind)

    def add(self, element: Expr, vector: int, columns: int) -> None:
        valid, form, vectors = columns - vector * self.lanes, self._form, Vectors(self.program, self.lanes)
        if valid < self.lanes:
            positions = [lane if lane < valid else lane + self.lanes for lane in range(self.lanes)]
            element = _shuffled([element, vectors.const(form.identity, "float32")], positions)
        if form.kind != "float32":
            element = vectors.cast(element, form.kind)
        self._sums[vector].value = form.join(vectors, self._sums[vector].value, element)

    def folded(self) -> Expr:
        kind, half = self._form.kind, PARTIAL_SUMS // 2
        whole = self._concatenate(self._sums, PARTIAL_SUMS, kind)
        vector = self._join(half, _part(whole, range(half)), _part(whole, range(half, 2 * half)))
        for distance in FOLDS[1:]:
            assert distance == PARTIAL_SUMS // 2 // half
            vector = self.program.bind(vector, f"{kind}x{half}")
            vector = self._join(half // 2, _part(vector, range(0, half, 2)), _part(vector, range(1, half, 2)))
            half //= 2
        if self._step.name == "qnn.real_mean":
            vector = tirx.Cast("float32", vector / tirx.const(float(self.columns), kind))
        return self.program.bind(vector, "float32")

    def _join(self, lanes: int, a: Expr, b: Expr) -> Expr:
        return self._form.join(Vectors(self.program, lanes), a, b)


class _Eights(RowReduction):
    """A reduction with 8 partial sums. At the end, their upper half is added to their lower half until one sum is left.

    Elements after the last multiple of eight columns are added last.
    """

    def __init__(self, program: Program, lanes: int, step: Step) -> None:
        super().__init__(program, lanes, step)
        self._width = min(EIGHTS, lanes)
        count = EIGHTS // self._width
        self._sums = self._registers(count, self._width, 0.0, "float32")
        self._rest = self._registers(count if self.columns % EIGHTS else 0, self._width, 0.0, "float32")

    def add(self, element: Expr, vector: int, columns: int) -> None:
        if self._width < self.lanes:
            element = Vectors(self.program, self.lanes).keep(element, "float32")
        for first in range(0, self.lanes, self._width):
            position = vector * self.lanes + first
            if position >= columns:
                break
            part = _part(element, range(first, first + self._width)) if self._width < self.lanes else element
            number = position % EIGHTS // self._width
            if position // EIGHTS * EIGHTS + EIGHTS <= columns:
                self._sums[number].value = self._combine(self._sums[number].value, part)
            else:
                self._rest[number].value = part

    def _combine(self, total: Expr, part: Expr) -> Expr:
        raise NotImplementedError

    def _halved(self, vector: Expr, lanes: int) -> Expr:
        """Adds the upper half of `lanes` sums to the lower half."""
        half = lanes // 2
        sums = _part(vector, range(half)) + _part(vector, range(half, lanes))
        return self.program.bind(sums, f"float32x{half}" if half > 1 else "float32")


class _Squares(_Eights):
    """`ops.real_squares`."""

    def _combine(self, total: Expr, part: Expr) -> Expr:
        return tensors.fma(part, part, total, self._width)

    def folded(self) -> Expr:
        total = self._concatenate(self._sums, EIGHTS, "float32")
        for lanes in (8, 4, 2):
            total = self._halved(total, lanes)
        one, rest = Vectors(self.program, 1), self.columns % EIGHTS
        elements = self._concatenate(self._rest, EIGHTS, "float32") if rest else None
        for index in range(rest):
            element = self.program.bind(_part(elements, [index]), "float32")
            if index < rounded_squares(self.columns):
                total = total + one.rounded(element * element)
            else:
                total = tensors.fma(element, element, total)
            total = self.program.bind(total, "float32")
        return total


class _Packets(_Eights):
    """A sum in the order `PACKETS`, for rows that all begin at aligned addresses.

    The packets are added in pairs. If their number is odd, one packet is left at the end.
    """

    def _combine(self, total: Expr, part: Expr) -> Expr:
        return total + part

    def folded(self) -> Expr:
        total = self._halved(self._concatenate(self._sums, EIGHTS, "float32"), EIGHTS)
        if self._rest:
            packet = _part(self._concatenate(self._rest, EIGHTS, "float32"), range(EIGHTS // 2))
            total = self.program.bind(total + packet, f"float32x{EIGHTS // 2}")
        for lanes in (4, 2):
            total = self._halved(total, lanes)
        return total


def _part(vector: Expr, lanes: Sequence[int]) -> Expr:
    return _shuffled([vector], lanes)


def _shuffled(vectors: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    return tirx.Shuffle(list(vectors), [tirx.const(lane, "int32") for lane in lanes])
