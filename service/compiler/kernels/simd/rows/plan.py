"""The plan of a region's kernel.

The plan determines the pass over the rows that computes each value, the values that are stored for later passes, and
the parameters of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from service.compiler.kernels.program import Buffer, Expr, Program, at_most, divided, load
from service.compiler.kernels.rows import Access, Operand, Output, Region, Step
from service.compiler.kernels.simd.rows.values import Computation, kind_of, number_of
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.ops.real import PARTIAL_SUMS
from service.core.models.arrays import Array

STEP = PARTIAL_SUMS  # the number of columns in a step of a pass
_TILE = 4  # the number of rows that are computed together, so that their sums hide each other's latency
_LARGEST_TILE_BYTES = 1 << 15  # the largest size of a tile's stored values, so that they stay in L1 cache


@dataclass
class Value:
    """A value of the region.

    Attributes:
        phase: the number of the pass that computes the value. A value with one number for each row is computed before
            the pass.
        kept: the index of the memory in which the value is stored for later passes; -1 if it is not stored.
    """

    step: Step
    computation: Computation
    phase: int
    kind: str
    kept: int = -1
    arrays: list[Buffer] = field(default_factory=list)


class RowPlan:
    """The plan of a region's kernel.

    Attributes:
        values: maps each variable to the value.
        phases: the number of passes.
        vectors: the number of vectors in a step.
        steps, rest: the number of whole steps in a row, and the number of remaining columns.
        used_steps: the number of whole steps to compute.
        waiting: the number of values that are stored for later passes.
        tile: the number of rows that are computed together.
        buffers, written: the kernel parameters of the region's inputs and outputs.
        array_buffers: for each constant operand that is an array, the kernel parameter.
        number_places: for each constant operand that is a number, its index in `number_buffer`.
    """

    def __init__(
        self,
        isa: Isa,
        mode: Mode,
        region: Region,
        sources: Sequence[Access],
        outputs: Sequence[Output],
        *,
        has_length: bool = False,
    ) -> None:
        self.isa, self.region, self.outputs = isa, region, dict(zip(region.outputs, outputs, strict=True))
        self.sources = dict(zip(region.inputs, sources, strict=True))
        self.values: dict[relax.Var, Value] = {}
        for step in region.steps:
            kind = kind_of(str(step.var.ty.dtype))
            self.values[step.var] = Value(step, Computation(mode, step), self._phase(step), kind)
        self.phases = 1 + max(value.phase + value.step.reduces for value in self.values.values())
        self.vectors = STEP // isa.lanes
        self.steps, self.rest = divmod(region.columns, STEP)
        self.has_length = has_length
        self.used_steps: Expr = self.steps
        self.numbers: list[int] = []
        self.constants: list[Array] = []
        self._keep()
        self.count = math.prod(region.outer)
        own = max(1, self.waiting * (self.steps + 1) * STEP * 4)
        self.tile = max(1, min(_TILE if self.phases > 1 else 2, self.count, _LARGEST_TILE_BYTES // own))

    def _phase(self, step: Step) -> int:
        """Returns the number of the pass that computes a step. This pass is after the passes of all reductions that the
        step depends on.
        """
        before = [self.values[operand] for operand in step.operands if isinstance(operand, relax.Var)]
        return max((value.phase + value.step.reduces for value in before), default=0)

    def _keep(self) -> None:
        """Assigns an index in memory to each value that a later pass needs."""
        self.waiting = 0
        for step in self.region.steps:
            phase = self.values[step.var].phase
            for operand in step.operands:
                value = self.values[operand] if isinstance(operand, relax.Var) else None
                if value is not None and not value.step.of_row:
                    self._keep_for(value, phase)

    def _keep_for(self, value: Value, phase: int) -> None:
        if value.phase < phase and value.kept < 0 and value.kind != "bool":
            value.kept, self.waiting = self.waiting, self.waiting + 1

    def declare(self, program: Program) -> None:
        """Declares the kernel's parameters: each input, each constant array, one array of all numbers, and each
        output.
        """
        self.buffers = {
            var: program.parameter(f"source_{index}", _stored(access.dtype), access.size)
            for index, (var, access) in enumerate(self.sources.items())
        }
        length = program.parameter("length", "int32", 1) if self.has_length else None
        self._take_constants(program)
        self.written = {
            var: program.parameter(f"destination_{index}", _stored(output.access.dtype), output.access.size)
            for index, (var, output) in enumerate(self.outputs.items())
        }
        if length is not None and self.steps:
            self.used_steps = program.bind(at_most(divided(load(length, 0, 1), STEP), self.steps))

    def _take_constants(self, program: Program) -> None:
        self.number_places: dict[tuple[relax.Var, int], int] = {}
        self.array_buffers: dict[tuple[relax.Var, int], Buffer] = {}
        for value in self.values.values():
            for position, operand in enumerate(value.step.operands):
                if isinstance(operand, Operand) and not isinstance(operand.tensor, relax.Var):
                    array = _as_stored(operand.tensor)
                    self.array_buffers[value.step.var, position] = self._parameter(program, array)
                elif isinstance(operand, bool | int | float):
                    self.number_places[value.step.var, position] = len(self.numbers)
                    self.numbers.append(number_of(operand, operand_kind(value.step, position)))
            value.arrays = [self._parameter(program, array) for array in value.computation.arrays]
        if self.numbers:
            self.number_buffer = self._parameter(program, np.array(self.numbers, np.int32))

    def _parameter(self, program: Program, array: Array) -> Buffer:
        self.constants.append(array)
        return program.parameter(f"constant_{len(self.constants)}", str(array.dtype), array.size)


def operand_kind(step: Step, index: int) -> str:
    """Returns the dtype in registers of operand number `index` of a step."""
    return kind_of(str(step.call.args[index].ty.dtype))


def _stored(dtype: str) -> str:
    """Returns the dtype of a buffer with elements of `dtype`. Booleans and signed bytes are stored as unsigned
    bytes.
    """
    return "uint8" if dtype in ("bool", "int8") else dtype


def _as_stored(array: Array) -> Array:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8) if str(array.dtype) in ("bool", "int8") else flat
