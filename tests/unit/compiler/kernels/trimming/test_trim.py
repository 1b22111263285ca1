"""A trimmed kernel writes every element inside the length, and leaves out most of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from service.compiler.kernels.program import Program, address, at_most, load, splat
from service.compiler.kernels.trimming.nodes import walk
from service.compiler.kernels.trimming.trim import Along, Written, trimmed
from service.compiler.targets import codegen_target
from service.core.models.arrays import Array
from service.core.target import detect_host

LENGTH, COLUMNS = 30, 8
SIZE = LENGTH * COLUMNS
ROWS = Written((Along(COLUMNS, LENGTH),))
UNTOUCHED = -1

Body = Callable[[Program, tirx.Buffer, tirx.Buffer], None]


def copy_row(program: Program, source: tirx.Buffer, out: tirx.Buffer, row: Any) -> None:
    program.store(out, row * COLUMNS, load(source, row * COLUMNS, COLUMNS), COLUMNS)


def rows(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    with program.loop(LENGTH, "row", parallel=True) as row:
        copy_row(program, source, out, row)


def tiles(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """Four rows at a time. The last tile begins earlier, so that it ends with the tensor."""
    with program.loop(8, "item", parallel=True) as item:
        first = program.bind(at_most(item * 4, LENGTH - 4))
        for row in range(4):
            copy_row(program, source, out, first + row)


def nested_tiles(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    with program.loop(2, "item", parallel=True) as item, program.loop(8, "tile") as tile:
        first = program.bind(at_most((item * 8 + tile) * 2, LENGTH - 2))
        copy_row(program, source, out, first)
        copy_row(program, source, out, first + 1)


def column_blocks(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """The first pass writes the first four columns of all rows, the second pass the others."""
    with program.loop(2 * 15, "item", parallel=True) as item:
        block, first = program.bind(tirx.floordiv(item, 15)), program.bind(tirx.floormod(item, 15) * 2)
        for row in range(2):
            offset = (first + row) * COLUMNS + block * 4
            program.store(out, offset, load(source, offset, 4), 4)


def channel_blocks(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """Each outer iteration writes four columns of all rows."""
    with program.loop(2, "block", parallel=True) as block, program.loop(15, "step") as step:
        for row in range(2):
            offset = (step * 2 + row) * COLUMNS + block * 4
            program.store(out, offset, load(source, offset, 4), 4)


def reduction(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """A register that is written in the inner loop and read after it."""
    with program.loop(LENGTH, "row", parallel=True) as row:
        total = program.register("int32", 1)
        total.value = tirx.const(0, "int32")
        with program.loop(COLUMNS, "column") as column:
            total.value = total.value + load(source, row * COLUMNS + column, 1)
        program.store(out, row * COLUMNS, splat(total.value, COLUMNS), COLUMNS)


def workspace(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """The inner loop writes memory that is read after it, and the output."""
    with program.loop(LENGTH // 2, "pair", parallel=True) as pair:
        memory = program.workspace(2 * COLUMNS, "int32")
        with program.loop(2, "one") as one:
            program.store(memory, one * COLUMNS, load(source, (pair * 2 + one) * COLUMNS, COLUMNS), COLUMNS)
            copy_row(program, source, out, pair * 2 + one)
        total = load(memory, 0, COLUMNS) + load(memory, COLUMNS, COLUMNS)
        program.store(out, pair * 2 * COLUMNS, total, COLUMNS)


def function_of(body: Body) -> tirx.PrimFunc:
    program = Program()
    source, out = (program.parameter(name, "int32", SIZE) for name in ("source", "out"))
    body(program, source, out)
    return program.function()


def compiled(function: tirx.PrimFunc, size: int = SIZE) -> Callable[..., Array]:
    """Returns a function that computes the output for the other operands."""
    target = tvm.target.Target(dict(codegen_target(detect_host().target).llvm))
    library = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target)

    def run(*operands: Array) -> Array:
        out = tvm.runtime.tensor(np.full(size, UNTOUCHED, np.int32))
        library["main"](*map(tvm.runtime.tensor, operands), out)
        written: Array = out.numpy()
        return written

    return run


def number(length: int) -> Array:
    return np.array([length], np.int32)


@pytest.mark.parametrize(
    ("body", "excess"),
    [(rows, 0), (tiles, 3), (nested_tiles, 1), (column_blocks, 1), (channel_blocks, 1), (reduction, 0), (workspace, 1)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_rows_inside_the_length_are_written_and_few_others(body: Body, excess: int) -> None:
    """`excess` is the number of rows that a tile writes beyond the length."""
    source = np.arange(SIZE, dtype=np.int32)
    whole = compiled(function_of(body))(source).reshape(LENGTH, COLUMNS)
    function = trimmed(function_of(body), 1, (), [ROWS])
    assert function is not None
    run = compiled(function)
    for length in range(1, LENGTH + 1):
        found = run(source, number(length)).reshape(LENGTH, COLUMNS)
        np.testing.assert_array_equal(found[:length], whole[:length])
        assert (found[length + excess :] == UNTOUCHED).all()


@pytest.mark.parametrize("body", [rows, column_blocks, channel_blocks], ids=lambda body: body.__name__)
def test_a_loop_over_ascending_positions_is_shortened(body: Body) -> None:
    """A condition in each of its iterations would take time beyond the length."""
    function = trimmed(function_of(body), 1, (), [ROWS])
    assert function is not None
    conditions: list[tirx.IfThenElse] = []
    walk(function.body, (tirx.IfThenElse, conditions.append))
    assert conditions == []


def test_a_loop_with_an_extent_that_is_known_at_run_time() -> None:
    """A kernel that is given the length shortens loops itself."""
    program = Program()
    source, count, out = (
        program.parameter(name, "int32", size) for name, size in (("source", SIZE), ("count", 1), ("out", SIZE))
    )
    used = program.bind(at_most(load(count, 0, 1), LENGTH))
    with program.loop(2, "half", parallel=True) as half, program.loop(used, "row") as row:
        program.store(out, row * COLUMNS + half * 4, load(source, row * COLUMNS + half * 4, 4), 4)
    function = trimmed(program.function(), 2, (), [ROWS])
    values = np.arange(SIZE, dtype=np.int32)
    assert function is not None
    found = compiled(function)(values, number(LENGTH), number(7))
    np.testing.assert_array_equal(found[: 7 * COLUMNS], values[: 7 * COLUMNS])
    assert (found[7 * COLUMNS :] == UNTOUCHED).all()


def test_blocks_of_columns() -> None:
    """Columns that are stored in blocks, each of which contains all rows."""
    program = Program()
    source, out = (program.parameter(name, "int32", SIZE) for name in ("source", "out"))
    with program.loop(SIZE // 16, "block", parallel=True) as block:
        program.store(out, block * 16, load(source, block * 16, 16), 16)
    function = trimmed(program.function(), 1, (), [Written((Along(16, SIZE // 16, 0, 4),))])
    assert function is not None
    values = np.arange(SIZE, dtype=np.int32)
    found = compiled(function)(values, number(9))
    np.testing.assert_array_equal(found[: 3 * 16], values[: 3 * 16])
    assert (found[3 * 16 :] == UNTOUCHED).all()


def test_rows_at_places_that_a_constant_states() -> None:
    """A kernel that moves rows reads from a table where each of them goes."""
    order = np.random.default_rng(0).permutation(LENGTH).astype(np.int32)
    program = Program()
    source, places, out = (
        program.parameter(name, "int32", size) for name, size in (("source", SIZE), ("places", LENGTH), ("out", SIZE))
    )
    with program.loop(5, "item", parallel=True) as item, program.loop(6, "one") as one:
        row = program.bind(load(places, item * 6 + one, 1))
        copy_row(program, source, out, row)
    values = np.arange(SIZE, dtype=np.int32)
    for table in (order, np.sort(order)):
        function = trimmed(program.function(), 1, [table], [ROWS])
        assert function is not None
        found = compiled(function)(values, number(7), table)
        np.testing.assert_array_equal(found[: 7 * COLUMNS], values[: 7 * COLUMNS])
        assert (found[7 * COLUMNS :] == UNTOUCHED).all()


def test_two_axes_of_one_output() -> None:
    """Scores `[length, length]`: rows and columns beyond the length are left out."""
    length, lanes = 16, 4
    size = length * length
    program = Program()
    source, out = (program.parameter(name, "int32", size) for name in ("source", "out"))
    with program.loop(length, "row", parallel=True) as row, program.loop(length // lanes, "block") as block:
        offset = row * length + block * lanes
        program.store(out, offset, load(source, offset, lanes), lanes)
    both = Written((Along(length, length), Along(1, length)))
    function = trimmed(program.function(), 1, (), [both])
    assert function is not None
    values = np.arange(size, dtype=np.int32)
    found = compiled(function, size)(values, number(5)).reshape(length, length)
    np.testing.assert_array_equal(found[:5, :5], values.reshape(length, length)[:5, :5])
    assert (found[5:] == UNTOUCHED).all()
    assert (found[:, 8:] == UNTOUCHED).all()


def _written_elsewhere(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """An instruction that is given an address of the output."""
    with program.loop(LENGTH, "row", parallel=True) as row:
        copy_row(program, source, out, row)
        program.perform("llvm.assume", tirx.isnullptr(address(out, 0)))


def _scattered(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """Rows whose places depend on the values of a tensor."""
    with program.loop(LENGTH, "row", parallel=True) as row:
        place = program.bind(load(source, row, 1))
        program.store(out, place * COLUMNS, load(source, row * COLUMNS, COLUMNS), COLUMNS)


def _reversed(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """Each iteration writes a row at the beginning and one at the end."""
    with program.loop(LENGTH // 2, "row", parallel=True) as row:
        copy_row(program, source, out, row)
        copy_row(program, source, out, LENGTH - 1 - row)


def _transposed(program: Program, source: tirx.Buffer, out: tirx.Buffer) -> None:
    """Every iteration writes one column of all rows."""
    with program.loop(COLUMNS, "column", parallel=True) as column:
        for row in range(LENGTH):
            program.store(out, row * COLUMNS + column, load(source, row * COLUMNS + column, 1), 1)


@pytest.mark.parametrize("body", [_written_elsewhere, _scattered, _transposed], ids=lambda body: body.__name__)
def test_a_kernel_whose_iterations_may_all_be_needed_does_not_change(body: Body) -> None:
    assert trimmed(function_of(body), 1, (), [ROWS]) is None


def test_an_iteration_that_writes_a_row_inside_is_not_left_out() -> None:
    source = np.arange(SIZE, dtype=np.int32)
    function = trimmed(function_of(_reversed), 1, (), [ROWS])
    assert function is not None
    found = compiled(function)(source, number(4))
    np.testing.assert_array_equal(found[: 4 * COLUMNS], source[: 4 * COLUMNS])


def test_an_output_whose_elements_are_all_needed_keeps_the_kernel_whole() -> None:
    program = Program()
    source, out, other = (program.parameter(name, "int32", SIZE) for name in ("source", "out", "other"))
    with program.loop(LENGTH, "row", parallel=True) as row:
        copy_row(program, source, out, row)
        copy_row(program, source, other, row)
    function = program.function()
    assert trimmed(function, 1, (), [ROWS, ROWS]) is not None
    assert trimmed(function, 1, (), [ROWS, Written()]) is None
    assert trimmed(function, 1, (), [Written(), Written()]) is None
    assert trimmed(function, 1, (), [ROWS, Written(is_scratch=True)]) is not None


def test_scratch_memory_that_a_later_loop_reads_is_written_whole() -> None:
    program = Program()
    source, out, scratch = (program.parameter(name, "int32", SIZE) for name in ("source", "out", "scratch"))
    with program.loop(LENGTH, "row", parallel=True) as row:
        copy_row(program, source, out, row)
        copy_row(program, source, scratch, row)
    with program.loop(LENGTH, "other", parallel=True) as row:
        program.store(out, 0, load(scratch, row * COLUMNS, COLUMNS), COLUMNS)
    assert trimmed(program.function(), 1, (), [ROWS, Written(is_scratch=True)]) is None
