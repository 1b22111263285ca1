"""Computes a few rows of a region, in all passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvm import relax, tirx

from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.program import Buffer, Expr, Program, bits, load, load_first
from service.compiler.kernels.rows import Access, Operand, Step
from service.compiler.kernels.simd.rows.plan import STEP, RowPlan, Value, operand_kind
from service.compiler.kernels.simd.rows.reductions import RowReduction, reduction_of
from service.compiler.kernels.simd.rows.values import Vectors
from service.compiler.kernels.vector.isa import Isa


class Tile:
    """A few rows of a region, and all passes over them."""

    def __init__(self, program: Program, isa: Isa, plan: RowPlan, first: Expr, memory: tuple[Buffer, Expr]) -> None:
        """
        Args:
            first: the index of the first row.
            memory: the buffer for values that later passes need, and the offset of this tile in it.
        """
        self.plan, self.program, self.isa = plan, program, isa
        self.memory, self.begin = memory
        self.rows = [self._places(first + row) for row in range(plan.tile)]
        self.of_rows: list[dict[relax.Var, Expr]] = [{} for _ in self.rows]
        self.reductions: list[dict[relax.Var, RowReduction]] = [{} for _ in self.rows]

    def _places(self, row: Expr) -> list[Expr]:
        """Returns the index of row number `row` in each outer dimension."""
        positions: list[Expr] = []
        for extent in self.plan.region.outer[:0:-1]:
            row = self.program.bind(row)
            positions.append(self.program.bind(row % extent))
            row = row // extent
        return [*([self.program.bind(row)] if self.plan.region.outer else []), *positions[::-1]]

    def write(self) -> None:
        for phase in range(self.plan.phases):
            self._row_values(phase)
            goals = [value for value in self.plan.values.values() if self._is_goal(value, phase)]
            if goals:
                self._pass(phase, goals)

    def _is_goal(self, value: Value, phase: int) -> bool:
        """Returns true if a pass must compute a value of each element, in order to store it or to reduce it."""
        if value.phase != phase or (value.step.of_row and not value.step.reduces):
            return False
        return value.step.reduces or value.kept >= 0 or value.step.var in self.plan.outputs

    def _row_values(self, phase: int) -> None:
        """Computes the values that each row has once, and that the pass number `phase` needs."""
        vectors = Vectors(self.program, 1)
        for value in self.plan.values.values():
            if value.step.reduces and value.phase == phase - 1:
                for row in range(len(self.rows)):
                    self.of_rows[row][value.step.var] = self.reductions[row][value.step.var].folded()
            elif value.step.of_row and not value.step.reduces and value.phase == phase:
                for row in range(len(self.rows)):
                    operands = [self._row_operand(row, value.step, index) for index in range(len(value.step.operands))]
                    made = value.computation.apply(vectors, operands, value.arrays)
                    self.of_rows[row][value.step.var] = self.program.bind(made, value.kind)
            else:
                continue
            if value.step.var in self.plan.outputs:
                self._store_row_values(value)

    def _store_row_values(self, value: Value) -> None:
        access, buffer = self.plan.outputs[value.step.var].access, self.plan.written[value.step.var]
        vectors = Vectors(self.program, 1)
        for row, positions in enumerate(self.rows):
            made = _stored(vectors, value, self.of_rows[row][value.step.var], blocked=bool(access.block))
            self.program.store(buffer, _offset(access, positions), made, 1)

    def _row_operand(self, row: int, step: Step, index: int) -> Expr:
        operand = step.operands[index]
        if isinstance(operand, relax.Var):
            return self.of_rows[row][operand]
        vectors = Vectors(self.program, 1)
        if not isinstance(operand, Operand):
            number = self.plan.number_places[step.var, index]
            value = vectors.number(self.plan.number_buffer, number, operand_kind(step, index))
            return _as_bool(vectors, value, step, index)
        buffer, access = self.memory_of(step, index, operand)
        return _loaded(load(buffer, _offset(access, self.rows[row]), 1), operand, 1)

    def _pass(self, phase: int, goals: list[Value]) -> None:
        for row in range(len(self.rows)):
            for value in goals:
                if value.step.reduces:
                    self.reductions[row][value.step.var] = reduction_of(self.program, self.isa.lanes, value.step)
        if self.plan.steps:
            with self.program.loop(self.plan.used_steps, "step") as step:
                self._step(phase, goals, step, STEP)
        if self.plan.rest:
            self._step(phase, goals, self.plan.steps, self.plan.rest)

    def _step(self, phase: int, goals: list[Value], step: Expr, columns: int) -> None:
        """Computes `columns` columns of each row, from column `step * STEP` on."""
        for vector, valid in _vectors(columns, self.isa.lanes):
            for row in range(len(self.rows)):
                position = _Place(self, row, phase, step * self.plan.vectors + vector, valid)
                for value in goals:
                    position.reach(value, vector, columns)

    def memory_of(self, step: Step, index: int, operand: Operand) -> tuple[Buffer, Access]:
        if isinstance(operand.tensor, relax.Var):
            source = self.plan.sources[operand.tensor]
            if source.block:
                return self.plan.buffers[operand.tensor], source.along(operand.axes)
            seen = replace(source, strides=operand.strides, column=operand.column)
            return self.plan.buffers[operand.tensor], seen
        buffer = self.plan.array_buffers[step.var, index]
        return buffer, Access(str(buffer.dtype), operand.tensor.size, operand.strides, operand.column)


class _Place:
    """One vector of columns of one row, in one pass. Each value of the region is computed only once for this vector."""

    def __init__(self, tile: Tile, row: int, phase: int, vector: Expr, valid: int) -> None:
        self.tile, self.row, self.phase = tile, row, phase
        self.vector, self.valid = vector, valid
        self.program, self.lanes = tile.program, tile.isa.lanes
        self.vectors = Vectors(tile.program, tile.isa.lanes)
        self.known: dict[relax.Var, Expr] = {}

    def reach(self, value: Value, number: int, columns: int) -> None:
        """Computes a value for which `_is_goal` is true, and stores or reduces it.

        Args:
            number: the index of the vector in a step of `columns` columns.
        """
        if value.step.reduces:
            reduction = self.tile.reductions[self.row][value.step.var]
            reduction.add(self._operand(value.step, 0), number, columns)
            return
        made = self._value(value)
        if value.kept >= 0:
            stored = _as_float(made, value.kind, self.lanes)
            self.program.store(self.tile.memory, self._waiting(value), stored, self.lanes)
        if value.step.var in self.tile.plan.outputs:
            self._store(value, made)

    def _store(self, value: Value, made: Expr) -> None:
        output = self.tile.plan.outputs[value.step.var]
        buffer, offset = self.tile.plan.written[value.step.var], self._at(output.access)
        made = _stored(self.vectors, value, made, blocked=bool(output.access.block))
        if output.access.block or self.valid == self.lanes:
            self.program.store(buffer, offset, made, self.lanes)
            return
        stored = "uint8" if value.kind == "bool" else value.kind
        self.program.store_first(buffer, offset, self.vectors.keep(made, stored), self.lanes, self.valid)

    def _at(self, access: Access) -> Expr:
        base = _offset(access, self.tile.rows[self.row])
        if access.block:
            return self.program.bind(base + self.vector * access.plane)
        return self.program.bind(base + self.vector * (self.lanes * access.column))

    def _waiting(self, value: Value) -> Expr:
        plan = self.tile.plan
        columns = (plan.steps + 1) * STEP
        own = (self.row * plan.waiting + value.kept) * columns
        return self.program.bind(self.tile.begin + own + self.vector * self.lanes)

    def _value(self, value: Value) -> Expr:
        var = value.step.var
        if var not in self.known:
            computed = self._computed(value)
            # Booleans are not bound to variables, because TVM's analysis does not support vectors of booleans.
            self.known[var] = computed if value.kind == "bool" else self.vectors.keep(computed, value.kind)
        return self.known[var]

    def _computed(self, value: Value) -> Expr:
        if value.step.of_row:
            return self.vectors.splat(self.tile.of_rows[self.row][value.step.var])
        if value.kept >= 0 and value.phase < self.phase:
            loaded = load(self.tile.memory, self._waiting(value), self.lanes)
            return _of_float(loaded, value.kind, self.lanes)
        operands = [self._operand(value.step, index) for index in range(len(value.step.operands))]
        return value.computation.apply(self.vectors, operands, value.arrays)

    def _operand(self, step: Step, index: int) -> Expr:
        operand = step.operands[index]
        if isinstance(operand, relax.Var):
            return self._value(self.tile.plan.values[operand])
        kind = operand_kind(step, index)
        plan = self.tile.plan
        if not isinstance(operand, Operand):
            value = self.vectors.number(plan.number_buffer, plan.number_places[step.var, index], kind)
            return _as_bool(self.vectors, value, step, index)
        buffer, access = self.tile.memory_of(step, index, operand)
        if not access.block and not access.column:
            value = self.vectors.splat(load(buffer, _offset(access, self.tile.rows[self.row]), 1))
        elif access.block or self.valid == self.lanes:
            value = load(buffer, self._at(access), self.lanes)
        else:
            value = load_first(buffer, self._at(access), self.lanes, self.valid)
        return _loaded(value, operand, self.lanes, blocked=bool(access.block))


def _vectors(columns: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yields (index, number of used lanes) for each of the vectors that contain `columns` columns."""
    for vector in range(-(-columns // lanes)):
        yield vector, min(lanes, columns - vector * lanes)


def _offset(access: Access, positions: Sequence[Expr]) -> Expr:
    offset: Expr = access.origin
    for position, stride in zip(positions, access.strides, strict=True):
        offset = offset + position * stride if stride else offset
    return offset


def _as_bool(vectors: Vectors, value: Expr, step: Step, index: int) -> Expr:
    """Converts a constant number to a boolean by comparing it with 0, if the operator needs a boolean."""
    if operand_kind(step, index) != "bool":
        return value
    return tirx.NE(value, vectors.const(0, "int32"))


def _stored(vectors: Vectors, value: Value, made: Expr, *, blocked: bool) -> Expr:
    """Converts a value in registers to the type that it has in memory."""
    if value.kind == "bool":
        return tirx.Select(made, vectors.const(1, "uint8"), vectors.const(0, "uint8"))
    is_signed = str(value.step.var.ty.dtype) == "int8" and not blocked
    return made ^ vectors.const(BIAS["int8"], "uint8") if is_signed else made


def _loaded(value: Expr, operand: Operand, lanes: int, *, blocked: bool = False) -> Expr:
    """Converts a loaded value to the type that it has in registers."""
    dtype = str(operand.tensor.ty.dtype if isinstance(operand.tensor, relax.Var) else operand.tensor.dtype)
    vectors = Vectors(Program(), lanes)
    if dtype == "bool":
        return tirx.NE(value, vectors.const(0, "uint8"))
    return value ^ vectors.const(BIAS["int8"], "uint8") if dtype == "int8" and not blocked else value


def _as_float(value: Expr, kind: str, lanes: int) -> Expr:
    """Returns the bits of a value, reinterpreted as float32."""
    if kind == "float32":
        return value
    return bits(f"float32x{lanes}", tirx.Cast(f"int32x{lanes}", value))


def _of_float(value: Expr, kind: str, lanes: int) -> Expr:
    if kind == "float32":
        return value
    whole = bits(f"int32x{lanes}", value)
    return whole if kind == "int32" else tirx.Cast(f"{kind}x{lanes}", whole)
