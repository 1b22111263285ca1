"""An LSTM over a whole sequence in one kernel. It reads the input's contribution to each gate, and writes the hidden
states.

The kernel computes a *unit* of `2 * Isa.lanes` cells at a time. The accumulators of its gates are in registers, as two
vectors of int32 for each gate. The accumulators are initialized with the bias, and products of weights and the hidden
state are added as in `conv`. Then the kernel rescales them, applies the gates' functions (`fixed16`) and computes the
new state, all in registers. There are two copies of both states in memory. A time step reads one copy and writes the
other. So units can overlap if the number of cells is not a multiple of the size of a unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.epilogue import load_channels
from service.compiler.kernels.arithmetic.fixed16 import Words
from service.compiler.kernels.group import LstmStep
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import SLACK_BYTES
from service.compiler.kernels.program import Buffer, Expr, Program, Register, at_most, load, shuffle, splat
from service.compiler.kernels.vector.isa import Isa
from service.compiler.kernels.vector.lanes import Lanes
from service.compiler.qnn.expressions.requantization import DoubleRounding
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.litert.recurrent import LstmCell, LstmOutput, Rescale, cell_bits, cell_bounds
from service.compiler.qnn.operation import value_of
from service.core.models.arrays import Array

_HALVES = 2  # the number of int32 vectors with as many lanes as an int16 vector
_BITS_OF_GATES = 3


@dataclass(frozen=True)
class Recurrence:
    """The parameters of an LSTM.

    Attributes:
        steps, batch, cells: the number of time steps, of sequences, and of cells.
        weights: the weights of the hidden state, `[gates * cells, cells] int8`. Without an input gate, there are three
            gates.
        zero_point: the zero point of the hidden state.
        significands, shifts: the multipliers that convert the sum of each row of `weights` to Q3.12.
        cell_bits: the integer bits of the cell state.
        cell_bounds: the bounds of the cell state.
        multiplier: the significand and shift that convert a product in Q0.30 to the hidden state.
        out_bounds: the zero point and the bounds of the hidden state.
    """

    steps: int
    batch: int
    cells: int
    weights: Array
    zero_point: int
    significands: Array
    shifts: Array
    cell_bits: int
    cell_bounds: tuple[int, int]
    multiplier: tuple[int, int]
    out_bounds: tuple[int, int, int]

    @property
    def gates(self) -> int:
        return len(self.weights) // self.cells

    @property
    def outputs(self) -> tuple[tuple[int, str], ...]:
        """The kernel's outputs, as (number of elements, dtype).

        The outputs are the hidden states of all steps, the last cell state, and scratch memory for two copies of both
        states.
        """
        cells = self.batch * self.cells
        memory = 2 * self.row_bytes * self.batch + SLACK_BYTES
        return (self.steps * cells, "int8"), (cells, "int16"), (memory, "uint8"), (2 * cells, "int16")

    @property
    def row_bytes(self) -> int:
        """The size of one sequence's hidden state in the kernel's memory, rounded up."""
        return -(-self.cells // SLACK_BYTES) * SLACK_BYTES


def recurrence(mode: Mode, step: LstmStep, steps: int) -> Recurrence:
    """Returns the parameters of an LSTM that repeats `step` for `steps` time steps.

    Raises:
        Declined: the kernel does not support the formula that `mode` uses for one of the operators, or its types or
            weights.
    """
    rescale, update, output = (mode.formula(each) for each in (step.rescale, step.update, step.output))
    if not (isinstance(rescale, Rescale) and isinstance(update, LstmCell) and isinstance(output, LstmOutput)):
        raise Declined("no kernel computes these formulas of the gates")
    weights, bias = (value_of(arg) for arg in step.dense.call.args[1:])
    in_type, gate_type = step.dense.per_tensor("in_type"), step.rescale.per_tensor("out_type")
    if weights is None or bias is None or bias.any() or any(step.dense.quantized("weight_type").zero_points):
        raise Declined("its recurrent weights are not constant, have a zero point other than 0, or have a bias")
    limits = gate_type.zero_point, gate_type.min, gate_type.max
    if weights.dtype != np.int8 or in_type.dtype != "int8" or limits != (0, -(1 << 15), (1 << 15) - 1):
        raise Declined("its weights, states and gates are not int8, int8 and int16")
    batch, cells = step.update.tensor(1)[0]
    if weights.shape[1] != cells:
        raise Declined("its hidden state is projected")
    out_type = step.output.per_tensor("out_type")
    significands, shifts = (np.broadcast_to(values, len(weights)) for values in rescale.multipliers(step.rescale))
    return Recurrence(
        steps,
        batch,
        cells,
        weights,
        in_type.zero_point,
        significands,
        shifts,
        cell_bits=cell_bits(step.update),
        cell_bounds=cell_bounds(step.update),
        multiplier=output.multiplier(step.output),
        out_bounds=(out_type.zero_point, out_type.min, out_type.max),
    )


def lstm(isa: Isa, recurrence: Recurrence) -> Kernel:
    """Returns the kernel of an LSTM.

    The kernel's inputs are the model input's contribution to each gate `[T * N * gates * C] int16` (T time steps, N
    sequences, C cells), the hidden state `[N * C] int8` and the cell state `[N * C] int16`. It writes
    `recurrence.outputs`.

    Raises:
        Declined: the LSTM has fewer cells than a unit.
    """
    if recurrence.cells < 2 * isa.lanes:
        raise Declined(f"its {recurrence.cells} cells are fewer than the {2 * isa.lanes} that are computed at once")
    return _Lstm(isa, recurrence).kernel()


class _Lstm:
    def __init__(self, isa: Isa, recurrence: Recurrence) -> None:
        self.isa, self.r = isa, recurrence
        self.unit = _HALVES * isa.lanes
        units = -(-recurrence.cells // self.unit)
        self.starts = [min(unit * self.unit, recurrence.cells - self.unit) for unit in range(units)]
        self.groups = -(-recurrence.cells // isa.group)
        self.vectors = recurrence.gates * _HALVES
        weights = self._by_unit(recurrence.weights)
        zero_point = recurrence.zero_point + 128 - isa.operand_zero_point
        bias = -zero_point * weights.astype(np.int64).sum(axis=-1)
        largest = (np.abs(weights.astype(np.int64)).sum(axis=-1) * 255).max(initial=0)
        self.rescaling = DoubleRounding(
            self._by_unit(recurrence.significands).reshape(-1),
            self._by_unit(recurrence.shifts).reshape(-1),
            bounded=bool(largest < 1 << 30),
        )
        self.constants = (self._packed(weights), bias.astype(np.int32).reshape(-1), *self.rescaling.arrays)

    def _by_unit(self, values: Array) -> Array:
        """Converts `[gates * cells, …]` to `[units, gates, halves, lanes, …]`. The last unit overlaps the previous
        one.
        """
        by_gate = values.reshape(self.r.gates, self.r.cells, *values.shape[1:])
        parts = [by_gate[:, start : start + self.unit] for start in self.starts]
        return np.stack(parts).reshape(len(parts), self.r.gates, _HALVES, self.isa.lanes, *values.shape[1:])

    def _packed(self, weights: Array) -> Array:
        """Returns the weights in the order of loading: unit, group, gate, half."""
        filled = np.pad(weights, [(0, 0)] * 4 + [(0, self.groups * self.isa.group - self.r.cells)])
        grouped = filled.reshape(*filled.shape[:4], self.groups, self.isa.group)
        return self.isa.pack_weights(grouped.transpose(0, 4, 1, 2, 3, 5)).reshape(-1)

    def kernel(self) -> Kernel:
        program = self.program = Program()
        self.lanes, self.words = Lanes(program, self.isa), Words(program, self.isa)
        r, cells = self.r, self.r.batch * self.r.cells
        self.seen = program.parameter("seen", "int16", r.steps * r.gates * cells)
        hidden, cell = program.parameter("hidden", "int8", cells), program.parameter("cell", "int16", cells)
        self.buffers = [
            program.parameter(f"constant_{index}", str(array.dtype), array.size)
            for index, array in enumerate(self.constants)
        ]
        names = ("hidden_states", "last_cell", "hidden_memory", "cell_memory")
        self.written, last_cell, self.hidden, self.cell = (
            program.parameter(name, dtype, size) for name, (size, dtype) in zip(names, r.outputs, strict=True)
        )
        self._begin(hidden, cell)
        with (
            program.loop(r.steps, "step") as step,
            program.loop(r.batch, "row") as row,
            program.loop(len(self.starts), "unit") as unit,
        ):
            self._unit(step, row, unit)
        with program.loop(r.batch, "row") as row, program.loop(len(self.starts), "unit") as unit:
            at = program.bind(row * r.cells + self._start(unit))
            value = load(self.cell, at + r.steps % 2 * cells, self.unit)
            program.store(last_cell, at, value, self.unit)
        facts = {"tile": f"{self.unit} cells", "steps": r.steps}
        return Kernel("lstm", program.function(), self.constants, r.outputs[0][0], facts)

    def _begin(self, hidden: Buffer, cell: Buffer) -> None:
        """Copies the initial states to the memory that the first time step reads."""
        program, r = self.program, self.r
        with program.loop(r.batch, "row") as row, program.loop(len(self.starts), "unit") as unit:
            start = self._start(unit)
            at = program.bind(row * r.cells + start)
            program.store(self.cell, at, load(cell, at, self.unit), self.unit)
            for half in range(_HALVES):
                lanes, first = self.isa.lanes, half * self.isa.lanes
                stored = self._stored(tirx.Cast(f"int32x{lanes}", load(hidden, at + first, lanes)))
                program.store(self.hidden, row * r.row_bytes + start + first, stored, lanes)

    def _start(self, unit: Expr) -> Expr:
        return self.program.bind(at_most(unit * self.unit, self.r.cells - self.unit))

    def _stored(self, value: Expr) -> Expr:
        """Converts a hidden state to unsigned bytes for `Isa.dot`, by adding 128."""
        return tirx.Cast(f"uint8x{self.isa.lanes}", value + self.lanes.const(128))

    def _unit(self, step: Expr, row: Expr, unit: Expr) -> None:
        program, r, lanes = self.program, self.r, self.isa.lanes
        start = self._start(unit)
        before, after = program.bind(step % 2), program.bind((step + 1) % 2)
        sums = self._sums(program.bind((before * r.batch + row) * r.row_bytes), unit)
        gates = self._gates(sums, program.bind((step * r.batch + row) * r.gates), start, unit)
        forget, candidate, output = gates[-3:]
        forget, candidate = self.words.logistic(forget), self.words.tanh(candidate, _BITS_OF_GATES)
        one = splat(tirx.const(32767, "int16"), self.unit)
        entry = self.words.logistic(gates[0]) if r.gates == 4 else one - forget
        at = program.bind(row * r.cells + start)
        cells = r.batch * r.cells
        cell = program.bind(load(self.cell, at + before * cells, self.unit), self.words.dtype)
        low, high = r.cell_bounds
        made = []
        for half in range(_HALVES):
            kept = self._divided(self._half(forget, half) * self._half(cell, half), 15)
            entered = self._divided(self._half(entry, half) * self._half(candidate, half), 15 + r.cell_bits)
            made.append(self._clamped(kept + entered, low, high, "int16"))
        new = self._concatenate(made)
        program.store(self.cell, at + after * cells, new, self.unit)
        opened, shown = self.words.logistic(output), self.words.tanh(new, r.cell_bits)
        for half in range(_HALVES):
            value = self._to_hidden_state(self._half(opened, half) * self._half(shown, half))
            first = start + half * lanes
            to_state = program.bind((after * r.batch + row) * r.row_bytes + first)
            program.store(self.hidden, to_state, self._stored(value), lanes)
            to = program.bind((step * r.batch + row) * r.cells + first)
            program.store(self.written, to, tirx.Cast(f"int8x{lanes}", value), lanes)

    def _sums(self, hidden: Expr, unit: Expr) -> list[Register]:
        """Computes the sums of products with the hidden state: two registers for each gate, one for each half of the
        unit.
        """
        program, isa, registers = self.program, self.isa, list[Register]()
        for index in range(self.vectors):
            register = program.register("int32", isa.lanes)
            register.value = load(self.buffers[1], (unit * self.vectors + index) * isa.lanes, isa.lanes)
            registers.append(register)
        with program.loop(self.groups, "group") as group:
            operand = isa.broadcast(program, self.hidden, hidden + group * isa.group)
            first = program.bind((unit * self.groups + group) * (self.vectors * isa.weight_elements))
            for index, register in enumerate(registers):
                weights = isa.weights(program, self.buffers[0], first + index * isa.weight_elements)
                register.value = isa.dot(register.value, operand, weights)
        return registers

    def _gates(self, sums: list[Register], seen: Expr, start: Expr, unit: Expr) -> list[Expr]:
        """Returns the arguments of the gates' functions in Q3.12: the rescaled sums plus the input's contribution."""
        lanes, gates = self.isa.lanes, []
        for gate in range(self.r.gates):
            halves = []
            for half in range(_HALVES):
                position = gate * _HALVES + half
                offset = (unit * self.vectors + position) * lanes
                channels = load_channels(self.lanes, self.rescaling, self.buffers[2:], offset)
                scaled = self.rescaling.express(self.lanes, sums[position].value, channels)
                at = (seen + gate) * self.r.cells + start + half * lanes
                added = tirx.Cast(f"int32x{lanes}", load(self.seen, at, lanes))
                bounded = tirx.max(tirx.min(scaled, self.lanes.const(1 << 17)), self.lanes.const(-(1 << 17)))
                halves.append(self._clamped(bounded + added, -(1 << 15), (1 << 15) - 1, "int16"))
            gates.append(self._concatenate(halves))
        return gates

    def _to_hidden_state(self, product: Expr) -> Expr:
        """Converts a product in Q0.30 to a hidden state, int32."""
        significand, shift = (np.array([value], np.int32) for value in self.r.multiplier)
        scale = DoubleRounding(significand, shift, bounded=True)
        numbers = tuple(self.lanes.const(int(array[0])) for array in scale.arrays)
        zero_point, low, high = (self.lanes.const(value) for value in self.r.out_bounds)
        scaled = scale.express(self.lanes, self.lanes.keep(product), numbers)
        return self.lanes.keep(tirx.max(tirx.min(scaled + zero_point, high), low))

    def _divided(self, product: Expr, exponent: int) -> Expr:
        return self.lanes.divide_by_pot(product, self.lanes.const(exponent))

    def _half(self, vector: Expr, half: int) -> Expr:
        lanes = self.isa.lanes
        return tirx.Cast(f"int32x{lanes}", shuffle(vector, range(half * lanes, (half + 1) * lanes)))

    def _clamped(self, value: Expr, low: int, high: int, dtype: str) -> Expr:
        held = tirx.max(tirx.min(value, self.lanes.const(high)), self.lanes.const(low))
        return tirx.Cast(f"{dtype}x{self.isa.lanes}", held)

    def _concatenate(self, halves: list[Expr]) -> Expr:
        order = [tirx.const(lane, "int32") for lane in range(self.unit)]
        register = self.program.register("int16", self.unit)
        register.value = tirx.Shuffle(halves, order)
        return register.value
