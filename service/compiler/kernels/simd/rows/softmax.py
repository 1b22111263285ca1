"""Softmax of 8-bit rows. Exponentials come from a table of 256 float32 values, and are added in the order of columns.

This order does not allow partial sums in vectors. So an iteration of the parallel loop computes several rows, whose
sums do not depend on each other. Each exponential needs one load and one addition. The quotients are computed in
vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.group import Group, PlainKernel, shape_of
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import BIAS, NO_HALO
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, bits, divided, load, shuffle, splat
from service.compiler.kernels.simd.rows.values import Vectors
from service.compiler.kernels.vector.isa import Isa, worth_sharing
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.functions.softmax import TableSoftmax
from service.compiler.qnn.numerics.onnxruntime.mlas_functions import ScaledSoftmax
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_ROWS = 8  # the number of rows that are computed together, to hide the latency of additions
_TABLE = 256  # the entries of a table
_CYCLES = 2.0  # the estimated cycles for one element


def softmax_kernel(isa: Isa, mode: Mode, group: Group) -> PlainKernel:
    """Returns the kernel of a `qnn.softmax` along the last axis.

    Raises:
        Declined: no kernel computes `mode`'s formula.
    """
    *outer, columns = shape_of(group.output)
    has_length = len(group.core.call.args) > 1
    quotient = _quotient_of(mode, group.core, range(1, columns + 1) if has_length else [columns])
    in_type, out_type = group.core.per_tensor("in_type"), group.core.per_tensor("out_type")
    if not {in_type.dtype, out_type.dtype} <= BIAS.keys():
        raise Declined("it is not stored in 8 bits")
    biased = BIAS[in_type.dtype], BIAS[out_type.dtype]
    kernel = _Softmax(isa, (math.prod(outer), columns), quotient, biased, has_length=has_length).kernel()
    return PlainKernel(kernel, NO_HALO, 0)


@dataclass(frozen=True)
class _Quotient:
    """Computes a stored value from an exponential and the sum of its row.

    Attributes:
        tables: the exponentials `[256] float32` for each possible number of columns, or one table for all of them. The
            index is the largest value of the row minus the value.
        factor: if `inverts`, the factor of the sum in `1 / (sum * factor)`; else the factor of the exponential.
        inverts: true to multiply by a reciprocal and round halves up; false to divide and round halves to even.
        zero_point, low, high: the zero point and the bounds of the stored value.
        least: the smallest number of columns for which this holds.
        below: the function for fewer columns.
    """

    tables: Array
    factor: float
    inverts: bool
    zero_point: int
    low: int
    high: int
    least: int = 1
    below: Callable[[Expr, Expr], Expr] | None = None

    @property
    def numbers(self) -> Array:
        factor = int(np.array(self.factor, np.float32).view(np.int32))
        return np.array([factor, self.zero_point, self.low, self.high], np.int32)

    def scale_of(self, vectors: Vectors, total: Expr, numbers: Buffer) -> Expr:
        """Returns the number by which a row's exponentials are multiplied or divided."""
        if not self.inverts:
            return total
        return vectors.const(1.0, "float32") / (total * vectors.number(numbers, 0, "float32"))

    def apply(self, vectors: Vectors, exponential: Expr, scale: Expr, numbers: Buffer) -> Expr:
        """Returns the value to store, int32, clamped to the bounds."""
        if self.inverts:
            moved = vectors.rounded(exponential * scale) + vectors.const(0.5, "float32")
            rounded = vectors.cast(moved, "int32")
        else:
            quotient = exponential * vectors.number(numbers, 0, "float32") / scale
            rounded = vectors.cast(tirx.nearbyint(quotient), "int32")
        zero_point, low, high = (vectors.number(numbers, position, "int32") for position in (1, 2, 3))
        return tirx.max(tirx.min(rounded + zero_point, high), low)


def _quotient_of(mode: Mode, operation: Operation, lengths: Sequence[int]) -> _Quotient:
    """Returns the formula for the numbers of columns `lengths`, which are ascending."""
    formula, out = mode.formula(operation), operation.per_tensor("out_type")
    bounds = out.zero_point, out.min, out.max
    if isinstance(formula, ScaledSoftmax):
        fitting = [each for each in lengths if formula.fits(operation, each)]
        if not fitting or fitting != list(lengths)[-len(fitting) :]:
            raise Declined("its products leave float32")
        tables = np.stack([formula.table(operation, each) for each in lengths])
        below = None if len(fitting) == len(lengths) else formula.normalize(operation, fits=False)
        return _Quotient(tables, float(formula.inverse(operation)), False, *bounds, fitting[0], below)
    if isinstance(formula, TableSoftmax) and len(lengths) == 1:
        return _Quotient(formula.table(operation), out.scale, True, *bounds)
    raise Declined(f"no kernel computes {formula.summary}")


class _Softmax:
    def __init__(
        self, isa: Isa, shape: tuple[int, int], quotient: _Quotient, biased: tuple[int, int], *, has_length: bool
    ) -> None:
        """
        Args:
            has_length: true if the number of columns to compute is an operand. The others are not read, and their
                results have no meaning.
        """
        self.isa, self.quotient, self.biased, self.has_length = isa, quotient, biased, has_length
        self.count, self.columns = shape
        self.rows = min(_ROWS, self.count)

    def kernel(self) -> Kernel:
        program = self.program = Program()
        size = self.count * self.columns
        self.source = program.parameter("source", "uint8", size)
        length = program.parameter("columns", "int32", 1) if self.has_length else None
        constants = (self.quotient.tables.astype(np.float32).reshape(-1), self.quotient.numbers)
        self.table, self.numbers = (
            program.parameter(name, str(array.dtype), array.size)
            for name, array in zip(("table", "numbers"), constants, strict=True)
        )
        self.written = program.parameter("destination", "uint8", size)
        tiles = -(-self.count // self.rows)
        with program.loop(tiles, "tile", parallel=worth_sharing(self.isa, size * _CYCLES)) as tile:
            first = program.bind(at_most(tile * self.rows, self.count - self.rows))
            self.exponentials = program.workspace(self.rows * self.columns, "float32")
            starts = [program.bind((first + row) * self.columns) for row in range(self.rows)]
            if length is None:
                used: Expr = self.columns
                self.begin: Expr = 0  # where the table begins
            else:
                used = program.bind(at_most(load(length, 0, 1), self.columns))
                self.begin = program.bind((used - 1) * _TABLE)
            totals = self._summed(starts, used)
            rows = list(enumerate(zip(starts, totals, strict=True)))
            with program.when(used >= self.quotient.least):
                for row, (start, total) in rows:
                    self._divided(row, start, total, used)
            if (below := self.quotient.below) is not None:
                with program.when(used < self.quotient.least):
                    for row, (start, total) in rows:
                        self._divided_each(row, start, total, used, below)
        return Kernel("softmax", program.function(), constants, size, {"rows": self.count, "columns": self.columns})

    @property
    def _width(self) -> int:
        """The number of float32 values in a vector, which is not longer than a row."""
        width = self.isa.lanes
        while width > self.columns:
            width //= 2
        return width

    def _summed(self, starts: list[Expr], columns: Expr) -> list[Expr]:
        """Looks up the exponentials of the first `columns` of all rows, and returns the sum of each row."""
        program = self.program
        largest = [self._largest(start, columns) for start in starts]
        totals = [program.register("float32", 1) for _ in starts]
        for total in totals:
            total.value = tirx.const(0.0, "float32")
        with program.loop(columns, "column") as column:
            for row, (start, most, total) in enumerate(zip(starts, largest, totals, strict=True)):
                distance = most - tirx.Cast("int32", self._to_unsigned(load(self.source, start + column, 1), 1))
                exponential = program.bind(load(self.table, self.begin + distance, 1), "float32")
                program.store(self.exponentials, row * self.columns + column, exponential, 1)
                total.value = total.value + exponential
        return [total.value for total in totals]

    def _to_unsigned(self, vector: Expr, width: int) -> Expr:
        """Converts bytes to unsigned bytes that have the same order."""
        if not self.biased[0]:
            return vector
        return vector ^ Vectors(self.program, width).const(self.biased[0], "uint8")

    def _largest(self, start: Expr, columns: Expr) -> Expr:
        """Returns the largest of the first `columns` values of a row, int32. The last two vectors overlap."""
        program, width = self.program, self.isa.bytes
        while width > self.columns:
            width //= 2
        most = program.register("uint8", width)
        most.value = splat(tirx.const(0, "uint8"), width)
        with program.loop(divided(columns, width), "vector") as vector:
            at = program.bind(at_most(vector * width, self.columns - width))
            values = self._to_unsigned(load(self.source, start + at, width), width)
            most.value = tirx.max(
                most.value, values if isinstance(columns, int) else _first(values, columns - at, width)
            )
        value = most.value
        while width > 1:
            value = program.bind(value, f"uint8x{width}")
            width //= 2
            value = tirx.max(shuffle(value, range(width)), shuffle(value, range(width, 2 * width)))
        return program.bind(tirx.Cast("int32", value), "int32")

    def _divided_each(
        self, row: int, start: Expr, total: Expr, columns: Expr, function: Callable[[Expr, Expr], Expr]
    ) -> None:
        """Stores the value that `function` gives for each of the first `columns` of a row."""
        program = self.program
        with program.loop(columns, "column") as column:
            value = function(load(self.exponentials, row * self.columns + column, 1), total)
            program.store(self.written, start + column, bits("uint8", value), 1)

    def _divided(self, row: int, start: Expr, total: Expr, columns: Expr) -> None:
        """Stores the quotients of the first `columns` of a row."""
        program, width = self.program, self._width
        vectors = Vectors(program, width)
        scale = vectors.splat(program.bind(self.quotient.scale_of(Vectors(program, 1), total, self.numbers), "float32"))
        with program.loop(divided(columns, width), "vector") as vector:
            column = program.bind(at_most(vector * width, self.columns - width))
            exponential = load(self.exponentials, row * self.columns + column, width)
            value = self.quotient.apply(vectors, exponential, scale, self.numbers)
            stored = vectors.cast(value, "int8" if self.biased[1] else "uint8")
            program.store(self.written, start + column, bits(vectors.dtype("uint8"), stored), width)


def _first(vector: Expr, count: Expr, lanes: int) -> Expr:
    """Returns the first `count` bytes of a vector, and 0 in the other lanes."""
    lane = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), lanes)
    return tirx.Select(tirx.LT(lane, splat(count, lanes)), vector, splat(tirx.const(0, "uint8"), lanes))
