"""The kernel of a region (`kernels.rows`): a few rows at a time, in as many passes over them as reductions follow upon
each other.

A value that a later pass needs again waits in memory of the kernel's own, which stays in the first level of cache; what
lies in memory anyway is loaded again. A step of a pass takes `STEP` columns of each of the rows, whatever the vectors'
width, so that a sum's order (`summation.LANES`) is the same on every target; the last step may have fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from tvm import relax, tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Array, Kernel
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.program import Buffer, Expr, Program, Register, at_most, bits, load, load_first, splat
from service.compiler.kernels.rows import Access, Operand, Output, Region, RowsKernel, Step
from service.compiler.kernels.simd.isa import Isa
from service.compiler.kernels.simd.row_values import Computation, Vectors, kind_of, number_of
from service.compiler.kernels.simd.tiles import worth_sharing
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.ops.real import FOLDS, PARTIAL_SUMS

STEP = PARTIAL_SUMS
_TILE = 4  # rows whose sums hide each other's latency
_ITEMS = 16  # shared between threads
_LARGEST_TILE_BYTES = 1 << 15  # of values that wait: what is larger leaves the first level of cache
_IDENTITY = {"relax.max": -math.inf, "relax.min": math.inf, "qnn.real_sum": 0.0}


def rows(isa: Isa, mode: Mode, region: Region, sources: Sequence[Access], outputs: Sequence[Output]) -> RowsKernel:
    """The kernel of `region`.

    Args:
        sources: of its `inputs`, as they lie in memory.
        outputs: of its `outputs`.
    """
    return _Rows(isa, mode, region, sources, outputs).kernel()


@dataclass
class _Value:
    """A value of the region.

    Attributes:
        phase: the pass in which it is known; a row's value is known before that pass.
        kept: where it waits for later passes, in vectors of columns; -1 where it does not.
    """

    step: Step
    computation: Computation
    phase: int
    kind: str
    kept: int = -1
    arrays: list[Buffer] = field(default_factory=list)


class _Rows:
    def __init__(
        self, isa: Isa, mode: Mode, region: Region, sources: Sequence[Access], outputs: Sequence[Output]
    ) -> None:
        self.isa, self.region, self.outputs = isa, region, dict(zip(region.outputs, outputs, strict=True))
        self.sources = dict(zip(region.inputs, sources, strict=True))
        self.values: dict[relax.Var, _Value] = {}
        for step in region.steps:
            kind = kind_of(str(step.var.ty.dtype))
            self.values[step.var] = _Value(step, Computation(mode, step), self._phase(step), kind)
        self.phases = 1 + max(value.phase + value.step.reduces for value in self.values.values())
        self.vectors = STEP // isa.lanes
        self.steps, self.rest = divmod(region.columns, STEP)
        self.numbers: list[int] = []
        self.constants: list[Array] = []
        self._keep()
        self.count = math.prod(region.outer)
        own = max(1, self.waiting * (self.steps + 1) * STEP * 4)
        self.tile = max(1, min(_TILE if self.phases > 1 else 2, self.count, _LARGEST_TILE_BYTES // own))

    def _phase(self, step: Step) -> int:
        """One more than that of a reduction that it needs."""
        before = [self.values[operand] for operand in step.operands if isinstance(operand, relax.Var)]
        return max((value.phase + value.step.reduces for value in before), default=0)

    def _keep(self) -> None:
        """Gives each value that a later pass needs its place."""
        self.waiting = 0
        for step in self.region.steps:
            phase = self.values[step.var].phase
            for operand in step.operands:
                value = self.values[operand] if isinstance(operand, relax.Var) else None
                if value is not None and not value.step.of_row:
                    self._keep_for(value, phase)

    def _keep_for(self, value: _Value, phase: int) -> None:
        if value.phase < phase and value.kept < 0 and value.kind != "bool":
            value.kept, self.waiting = self.waiting, self.waiting + 1

    # -- the program

    def kernel(self) -> RowsKernel:
        program = self.program = Program()
        self.buffers: dict[relax.Var, Buffer] = {
            var: program.parameter(f"source_{place}", _stored(access.dtype), access.size)
            for place, (var, access) in enumerate(self.sources.items())
        }
        self._take_constants()
        self.written = {
            var: program.parameter(f"destination_{place}", _stored(output.access.dtype), output.access.size)
            for place, (var, output) in enumerate(self.outputs.items())
        }
        tiles = -(-self.count // self.tile)
        items = min(_ITEMS, tiles)
        work = self.count * self.region.columns * len(self.region.steps) / self.isa.lanes
        parallel = worth_sharing(self.isa, work)
        items = items if parallel else 1
        own = self.tile * self.waiting * (self.steps + 1) * STEP
        self.memory = program.parameter("memory", "float32", max(1, items * own)) if own else None
        self._fill_halos()
        each = -(-tiles // items)
        with program.loop(items, "item", parallel=parallel) as item, program.loop(each, "tile") as tile:
            first = program.bind(at_most((item * each + tile) * self.tile, self.count - self.tile))
            _Tile(self, first, item * own).write()
        facts = {"rows": self.count, "columns": self.region.columns}
        size = next(iter(self.outputs.values())).access.size
        kernel = Kernel("rows", program.function(), tuple(self.constants), size, facts)
        return RowsKernel(kernel, items * own)

    def _take_constants(self) -> None:
        """Has a buffer for each array, and one for all numbers."""
        self.number_places: dict[tuple[relax.Var, int], int] = {}
        self.array_buffers: dict[tuple[relax.Var, int], Buffer] = {}
        arrays: list[Array] = []
        for value in self.values.values():
            for place, operand in enumerate(value.step.operands):
                if isinstance(operand, Operand) and not isinstance(operand.tensor, relax.Var):
                    array = _as_stored(operand.tensor)
                    arrays.append(array)
                    self.array_buffers[value.step.var, place] = self._parameter(array)
                elif isinstance(operand, bool | int | float):
                    self.number_places[value.step.var, place] = len(self.numbers)
                    self.numbers.append(number_of(operand, _operand_kind(value.step, place)))
            value.arrays = [self._parameter(array) for array in value.computation.arrays]
        if self.numbers:
            self.number_buffer = self._parameter(np.array(self.numbers, np.int32))

    def _parameter(self, array: Array) -> Buffer:
        self.constants.append(array)
        return self.program.parameter(f"constant_{len(self.constants)}", str(array.dtype), array.size)

    def _fill_halos(self) -> None:
        for var, output in self.outputs.items():
            image = output.image
            if image is not None and image.halo:
                value, planes = tirx.const(output.fill, "uint8"), image.batch * image.blocks
                fill_halo(
                    self.program, self.isa.bytes, self.written[var], image, value, plane=0, planes=planes, when=True
                )


class _Tile:
    """Some rows, all passes over them."""

    def __init__(self, whole: _Rows, first: Expr, memory: Expr) -> None:
        self.whole, self.program, self.isa = whole, whole.program, whole.isa
        self.memory = memory
        self.rows = [self._places(first + row) for row in range(whole.tile)]
        self.of_rows: list[dict[relax.Var, Expr]] = [{} for _ in self.rows]
        self.registers: list[dict[relax.Var, list[Register]]] = [{} for _ in self.rows]

    def _places(self, row: Expr) -> list[Expr]:
        """Its index in each outer dimension."""
        places: list[Expr] = []
        for extent in self.whole.region.outer[:0:-1]:
            row = self.program.bind(row)
            places.append(self.program.bind(row % extent))
            row = row // extent
        return [*([self.program.bind(row)] if self.whole.region.outer else []), *places[::-1]]

    def write(self) -> None:
        for phase in range(self.whole.phases):
            self._row_values(phase)
            goals = [value for value in self.whole.values.values() if self._is_goal(value, phase)]
            if goals:
                self._pass(phase, goals)

    def _is_goal(self, value: _Value, phase: int) -> bool:
        """Whether a pass has to compute a value of each element, or a row's of them."""
        if value.phase != phase or (value.step.of_row and not value.step.reduces):
            return False
        return value.step.reduces or value.kept >= 0 or value.step.var in self.whole.outputs

    def _row_values(self, phase: int) -> None:
        """Values of rows that are known before a pass."""
        vectors = Vectors(self.program, 1)
        for value in self.whole.values.values():
            if value.step.reduces and value.phase == phase - 1:
                for row in range(len(self.rows)):
                    self.of_rows[row][value.step.var] = self._folded(row, value)
            elif value.step.of_row and not value.step.reduces and value.phase == phase:
                for row in range(len(self.rows)):
                    operands = [self._row_operand(row, value.step, place) for place in range(len(value.step.operands))]
                    made = value.computation.apply(vectors, operands, value.arrays)
                    self.of_rows[row][value.step.var] = self.program.bind(made, value.kind)
            else:
                continue
            if value.step.var in self.whole.outputs:
                self._store_row_values(value)

    def _store_row_values(self, value: _Value) -> None:
        access, buffer = self.whole.outputs[value.step.var].access, self.whole.written[value.step.var]
        for row, places in enumerate(self.rows):
            made = self.of_rows[row][value.step.var]
            made = tirx.Cast("uint8", made) if value.kind == "bool" else made
            self.program.store(buffer, _offset(access, places), made, 1)

    def _row_operand(self, row: int, step: Step, place: int) -> Expr:
        operand = step.operands[place]
        if isinstance(operand, relax.Var):
            return self.of_rows[row][operand]
        vectors = Vectors(self.program, 1)
        if not isinstance(operand, Operand):
            number = self.whole.number_places[step.var, place]
            value = vectors.number(self.whole.number_buffer, number, _operand_kind(step, place))
            return _as_bool(vectors, value, step, place)
        buffer, access = self._memory_of(step, place, operand)
        return _loaded(load(buffer, _offset(access, self.rows[row]), 1), operand, 1)

    def _folded(self, row: int, value: _Value) -> Expr:
        """One value of the `STEP` lanes of a reduction, in the order of `ops.real.FOLDS`."""
        registers = [register.value for register in self.registers[row][value.step.var]]
        join, half = _joining(value.step.name), STEP // 2
        whole = self._joined(registers, range(STEP))
        vector = join(_lanes(whole, range(half)), _lanes(whole, range(half, STEP)))
        for distance in FOLDS[1:]:
            assert distance == STEP // 2 // half
            vector = self.program.bind(vector, f"float32x{half}")
            vector = join(_lanes(vector, range(0, half, 2)), _lanes(vector, range(1, half, 2)))
            half //= 2
        return self.program.bind(vector, "float32")

    def _joined(self, registers: Sequence[Expr], lanes: Sequence[int]) -> Expr:
        joined = tirx.Shuffle(list(registers), [tirx.const(lane, "int32") for lane in lanes])
        return self.program.bind(joined, f"float32x{len(lanes)}")

    def _pass(self, phase: int, goals: list[_Value]) -> None:
        for row in range(len(self.rows)):
            for value in goals:
                if value.step.reduces:
                    self.registers[row][value.step.var] = [
                        self._register(_IDENTITY[value.step.name]) for _ in range(self.whole.vectors)
                    ]
        if self.whole.steps:
            with self.program.loop(self.whole.steps, "step") as step:
                self._step(phase, goals, step, STEP)
        if self.whole.rest:
            self._step(phase, goals, self.whole.steps, self.whole.rest)

    def _register(self, value: float) -> Register:
        register = self.program.register("float32", self.isa.lanes)
        register.value = splat(tirx.const(value, "float32"), self.isa.lanes)
        return register

    def _step(self, phase: int, goals: list[_Value], step: Expr, columns: int) -> None:
        """`columns` columns of each row from number `step * STEP` on."""
        for vector, valid in _vectors(columns, self.isa.lanes):
            for row in range(len(self.rows)):
                place = _Place(self, row, phase, step * self.whole.vectors + vector, valid)
                for value in goals:
                    place.reach(value, vector)

    def _memory_of(self, step: Step, place: int, operand: Operand) -> tuple[Buffer, Access]:
        if isinstance(operand.tensor, relax.Var):
            source = self.whole.sources[operand.tensor]
            if source.block:
                return self.whole.buffers[operand.tensor], source.along(operand.axes)
            seen = replace(source, strides=operand.strides, column=operand.column)
            return self.whole.buffers[operand.tensor], seen
        buffer = self.whole.array_buffers[step.var, place]
        return buffer, Access(str(buffer.dtype), operand.tensor.size, operand.strides, operand.column)


class _Place:
    """A vector of columns of one row in one pass: what is computed there, once."""

    def __init__(self, tile: _Tile, row: int, phase: int, vector: Expr, valid: int) -> None:
        self.tile, self.row, self.phase = tile, row, phase
        self.vector, self.valid = vector, valid
        self.program, self.lanes = tile.program, tile.isa.lanes
        self.vectors = Vectors(tile.program, tile.isa.lanes)
        self.known: dict[relax.Var, Expr] = {}

    def reach(self, value: _Value, number: int) -> None:
        """Computes a goal of the pass, and puts it where it belongs."""
        if value.step.reduces:
            element = self._operand(value.step, 0)
            if self.valid < self.lanes:
                identity = self.vectors.const(_IDENTITY[value.step.name], "float32")
                element = tirx.Shuffle(
                    [element, identity],
                    [
                        tirx.const(lane if lane < self.valid else lane + self.lanes, "int32")
                        for lane in range(self.lanes)
                    ],
                )
            register = self.tile.registers[self.row][value.step.var][number]
            register.value = _joining(value.step.name)(register.value, element)
            return
        made = self._value(value)
        if value.kept >= 0:
            whole = self.tile.whole
            self.program.store(whole.memory, self._waiting(value), _as_float(made, value.kind, self.lanes), self.lanes)
        if value.step.var in self.tile.whole.outputs:
            self._store(value, made)

    def _store(self, value: _Value, made: Expr) -> None:
        output = self.tile.whole.outputs[value.step.var]
        buffer, offset = self.tile.whole.written[value.step.var], self._at(output.access)
        if value.kind == "bool":
            made = tirx.Select(made, self.vectors.const(1, "uint8"), self.vectors.const(0, "uint8"))
        elif str(value.step.var.ty.dtype) == "int8" and not output.access.block:
            made = made ^ self.vectors.const(BIAS["int8"], "uint8")
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

    def _waiting(self, value: _Value) -> Expr:
        whole = self.tile.whole
        columns = (whole.steps + 1) * STEP
        own = (self.row * whole.waiting + value.kept) * columns
        return self.program.bind(self.tile.memory + own + self.vector * self.lanes)

    def _value(self, value: _Value) -> Expr:
        var = value.step.var
        if var not in self.known:
            computed = self._computed(value)
            # The analysis of tensor IR takes no variables that are vectors of booleans.
            self.known[var] = computed if value.kind == "bool" else self.vectors.keep(computed, value.kind)
        return self.known[var]

    def _computed(self, value: _Value) -> Expr:
        if value.step.of_row:
            return self.vectors.splat(self.tile.of_rows[self.row][value.step.var])
        if value.kept >= 0 and value.phase < self.phase:
            loaded = load(self.tile.whole.memory, self._waiting(value), self.lanes)
            return _of_float(loaded, value.kind, self.lanes)
        operands = [self._operand(value.step, place) for place in range(len(value.step.operands))]
        return value.computation.apply(self.vectors, operands, value.arrays)

    def _operand(self, step: Step, place: int) -> Expr:
        operand = step.operands[place]
        if isinstance(operand, relax.Var):
            return self._value(self.tile.whole.values[operand])
        kind = _operand_kind(step, place)
        whole = self.tile.whole
        if not isinstance(operand, Operand):
            value = self.vectors.number(whole.number_buffer, whole.number_places[step.var, place], kind)
            return _as_bool(self.vectors, value, step, place)
        buffer, access = self.tile._memory_of(step, place, operand)
        if not access.block and not access.column:
            value = self.vectors.splat(load(buffer, _offset(access, self.tile.rows[self.row]), 1))
        elif access.block or self.valid == self.lanes:
            value = load(buffer, self._at(access), self.lanes)
        else:
            value = load_first(buffer, self._at(access), self.lanes, self.valid)
        return _loaded(value, operand, self.lanes, blocked=bool(access.block))


def _vectors(columns: int, lanes: int) -> Iterator[tuple[int, int]]:
    """The vectors of so many columns: number, and how many lanes are columns."""
    for vector in range(-(-columns // lanes)):
        yield vector, min(lanes, columns - vector * lanes)


def _offset(access: Access, places: Sequence[Expr]) -> Expr:
    offset: Expr = access.origin
    for place, stride in zip(places, access.strides, strict=True):
        offset = offset + place * stride if stride else offset
    return offset


def _joining(name: str) -> Callable[[Expr, Expr], Expr]:
    joining: dict[str, Callable[[Expr, Expr], Expr]] = {
        "relax.max": tirx.max,
        "relax.min": tirx.min,
        "qnn.real_sum": lambda a, b: a + b,
    }
    return joining[name]


def _lanes(vector: Expr, lanes: Sequence[int]) -> Expr:
    return tirx.Shuffle([vector], [tirx.const(lane, "int32") for lane in lanes])


def _stored(dtype: str) -> str:
    """A buffer's dtype: booleans and bytes of either sign are unsigned bytes."""
    return "uint8" if dtype in ("bool", "int8") else dtype


def _as_stored(array: Array) -> Array:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8) if str(array.dtype) in ("bool", "int8") else flat


def _operand_kind(step: Step, place: int) -> str:
    return kind_of(str(step.call.args[place].ty.dtype))


def _as_bool(vectors: Vectors, value: Expr, step: Step, place: int) -> Expr:
    """A number where a boolean is wanted is compared with 0."""
    if _operand_kind(step, place) != "bool":
        return value
    return tirx.NE(value, vectors.const(0, "int32"))


def _loaded(value: Expr, operand: Operand, lanes: int, *, blocked: bool = False) -> Expr:
    """What was loaded, as a value of a register."""
    dtype = str(operand.tensor.ty.dtype if isinstance(operand.tensor, relax.Var) else operand.tensor.dtype)
    vectors = Vectors(Program(), lanes)
    if dtype == "bool":
        return tirx.NE(value, vectors.const(0, "uint8"))
    return value ^ vectors.const(BIAS["int8"], "uint8") if dtype == "int8" and not blocked else value


def _as_float(value: Expr, kind: str, lanes: int) -> Expr:
    """The bits of a value as float32."""
    if kind == "float32":
        return value
    return bits(f"float32x{lanes}", tirx.Cast(f"int32x{lanes}", value))


def _of_float(value: Expr, kind: str, lanes: int) -> Expr:
    if kind == "float32":
        return value
    whole = bits(f"int32x{lanes}", value)
    return whole if kind == "int32" else tirx.Cast(f"{kind}x{lanes}", whole)
