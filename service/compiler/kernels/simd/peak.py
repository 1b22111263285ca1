"""A loop that consists of dot products only. Reports compare the speed of kernels with the speed of this loop.

The loop must be measured on the machine that runs the model, at the same time as the model: the clock rate depends on
the load of the machine, and the number of dot products per cycle depends on the CPU. A process that runs artifacts has
no compiler, so the compiler adds such a loop to every library, which costs a few kilobytes. The loop is written with
the same instructions as the kernels. A kernel at 100 % would do nothing but multiply.
"""

from __future__ import annotations

import re

from tvm import tirx

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.vector.isa import Isa, Matrix

_ITEMS = 48  # the iterations of the parallel loop; 2, 3, 4, 6, 8 … threads get equal numbers of them
# the number of repetitions in one iteration; together they take some microseconds, much longer than starting threads
_REPETITIONS = 4096
_PERIOD = 8  # the number of different operands; with one operand, the compiler could move the product out of the loop
_COLUMNS = 2
_TILE_REPETITIONS = 512  # fewer than `_REPETITIONS`, because a tile product takes about as long as ten vector products


def symbol_of(isa: Isa) -> str:
    return f"octet_peak_{re.sub('[^0-9a-z]', '_', isa.name)}"


def peak(isa: Isa) -> Kernel:
    """Returns the kernel with the loop. The loop uses the instructions that multiply tiles if the instruction set has
    any.
    """
    return _of_vectors(isa) if isa.matrix is None else _of_tiles(isa, isa.matrix)


def _of_tiles(isa: Isa, unit: Matrix) -> Kernel:
    """Returns a kernel with tile products: totals[item, row, column] += repetitions * operands[row] * operands[2 +
    column].
    """
    tile_totals, numbers = unit.rows * isa.lanes, range(_COLUMNS * _COLUMNS)
    totals_elements, operands_elements = _ITEMS * len(numbers) * tile_totals, 2 * _COLUMNS * unit.weight_bytes
    program = Program()
    operands = program.parameter("operands", "int8", operands_elements)
    totals = program.parameter("totals", "int32", totals_elements)
    rows, columns = ([len(numbers) + first + position for position in range(_COLUMNS)] for first in (0, _COLUMNS))
    with program.loop(_ITEMS, "item", parallel=True) as item:
        unit.configure(program, program.workspace(unit.depth), 0, unit.rows, range(rows[-1] + 1))
        positions = [(item * len(numbers) + tile) * tile_totals for tile in numbers]
        for tile, position in zip(numbers, positions, strict=True):
            unit.load(program, tile, totals, position, 4 * isa.lanes)
        for position, tile in enumerate((*rows, *columns)):
            unit.load(program, tile, operands, position * unit.weight_bytes, unit.depth)
        with program.loop(_TILE_REPETITIONS, "repetition"):
            for tile in numbers:
                unit.multiply(program, tile, rows[tile // _COLUMNS], columns[tile % _COLUMNS])
        for tile, position in zip(numbers, positions, strict=True):
            unit.store(program, tile, totals, position, 4 * isa.lanes)
        unit.release(program)
    facts = {
        "symbol": symbol_of(isa),
        "isa": isa.name,
        "macs": _ITEMS * _TILE_REPETITIONS * len(numbers) * tile_totals * unit.depth,
        "operands": {"dtype": "int8", "elements": operands_elements},
        "totals": {"dtype": "int32", "elements": totals_elements},
    }
    return Kernel("peak", program.function(), (), 4 * totals_elements, facts)


def _of_vectors(isa: Isa) -> Kernel:
    """Returns a kernel with vector products. Its parameters are `operands` and `totals`; its facts contain their sizes.

    For each repetition, it computes totals[item, row, column] += operands[repetition % period, row] * operands[period,
    column]. The `rows` by two accumulators stay in registers. This number of accumulators is large enough to hide the
    latency of `Isa.dot`, and small enough to leave registers for the operands.
    """
    rows = min(6, (isa.registers - 3 * isa.weight_vectors - 1) // _COLUMNS)
    totals_elements = _ITEMS * rows * _COLUMNS * isa.lanes
    operands_elements = (_PERIOD * rows + _COLUMNS) * isa.weight_elements
    program = Program()
    operands = program.parameter("operands", isa.weight_dtype, operands_elements)
    totals = program.parameter("totals", "int32", totals_elements)
    with program.loop(_ITEMS, "item", parallel=True) as item:
        registers = [program.register("int32", isa.lanes) for _ in range(rows * _COLUMNS)]
        for index, register in enumerate(registers):
            register.value = load(totals, (item * len(registers) + index) * isa.lanes, isa.lanes)
        columns = [
            isa.weights(program, operands, (_PERIOD * rows + column) * isa.weight_elements)
            for column in range(_COLUMNS)
        ]
        with program.loop(_REPETITIONS, "repetition") as repetition:
            first = program.bind(tirx.bitwise_and(repetition, tirx.const(_PERIOD - 1, "int32")) * rows)
            for row in range(rows):
                values = isa.weights(program, operands, (first + row) * isa.weight_elements)
                for column in range(_COLUMNS):
                    register = registers[row * _COLUMNS + column]
                    register.value = isa.dot(register.value, values, columns[column])
        for index, register in enumerate(registers):
            program.store(totals, (item * len(registers) + index) * isa.lanes, register.value, isa.lanes)
    facts = {
        "symbol": symbol_of(isa),
        "isa": isa.name,
        "macs": _ITEMS * _REPETITIONS * rows * _COLUMNS * isa.weight_elements,
        "operands": {"dtype": isa.weight_dtype, "elements": operands_elements},
        "totals": {"dtype": "int32", "elements": totals_elements},
    }
    return Kernel("peak", program.function(), (), 4 * totals_elements, facts)
