"""The loops, compiled: `threads` cores each repeat one instruction on accumulators that stay in registers.

The compiler must not remove products as redundant. Therefore the initial values of the accumulators are read from
memory, so that the compiler cannot assume that two of them are equal. One operand of each product is read from memory
again in every repetition, so that no product equals an earlier one. `Loop` also counts the instructions in the
generated code, and compares the loop's result with NumPy's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import StringImm
from tvm.target.codegen import llvm_get_system_cpu
from tvm.tirx import AllocBuffer, AttrStmt, Bind, BufferLoad, BufferStore, For, ForKind, PrimFunc, Ramp, SeqStmt, Var

from benchmarks.harness.turns import time_calls
from benchmarks.peak.instructions import FUNCTIONS, Instruction
from service.core.models.arrays import Array

Expr = Any

ROWS, COLUMNS = 6, 2  # 12 accumulators hide a latency of 4 cycles at 2 products per cycle, and fit AVX2's 16 registers.
REPETITIONS = 400_000  # In one call, which takes some milliseconds, so that its overhead is negligible.
_PERIOD = 8  # Repetitions after which the operands in memory repeat.
CLOCK_STEPS, CYCLES_OF_STEP = 8, 4  # An imul takes 3 cycles and an xor takes 1, on every x86-64 of the last ten years.


class Loop:
    """`instruction` on `threads` cores at once; a call repeats it `REPETITIONS` times on each.

    Raises:
        RuntimeError: the compiler generated other code than intended, or the result is wrong.
    """

    def __init__(self, instruction: Instruction, threads: int) -> None:
        function = compile_loop(instruction, threads, llvm_get_system_cpu())
        lanes, width = instruction.lanes, instruction.operand_lanes
        rng = np.random.default_rng(0)
        values = _stored(instruction, rng.integers(0, 64, (_PERIOD * ROWS + COLUMNS) * width))
        rows, columns = np.split(values, [_PERIOD * ROWS * width])
        totals = np.zeros(threads * ROWS * COLUMNS * lanes, instruction.accumulator)
        given = [tvm.runtime.tensor(array) for array in (rows, columns, totals)]
        self.macs = threads * REPETITIONS * ROWS * COLUMNS * instruction.macs
        self.call: Callable[[], object] = lambda: function(*given)
        self.call()
        if instruction.accumulator == "int32":
            result = given[2].numpy().reshape(threads, ROWS, COLUMNS, lanes)
            if not (result == _expected(instruction, rows, columns)).all():
                raise RuntimeError(f"{instruction.name}: the loop's result is wrong")


class Clock:
    """A chain of dependent additions and multiplications: its time is a known number of cycles."""

    _CALLS, _REPETITIONS = 200, 20_000  # the calls are so short that most of them are not interrupted

    def __init__(self) -> None:
        self._function = compiled(_chain(self._REPETITIONS), llvm_get_system_cpu())
        self._state = tvm.runtime.tensor(np.array([3, 6364136223846793005, 1442695040888963407], np.int64))

    def ghz(self) -> float:
        """Returns the current clock rate of this thread's core; the fastest of several calls counts."""
        fastest_s = min(time_calls(lambda: self._function(self._state), 0, self._CALLS))
        return self._REPETITIONS * CLOCK_STEPS * CYCLES_OF_STEP / fastest_s / 1e9


def compile_loop(instruction: Instruction, threads: int, cpu: str) -> Any:
    """Returns the module whose `loop` is called with (rows, columns, totals), compiled for LLVM's `cpu` and checked.

    Raises:
        RuntimeError: the compiler generated other code than intended.
    """
    module = compiled(_multiply(instruction, threads), instruction.cpu or cpu)
    check_code(module.mod.inspect_source("asm"), instruction)
    return module


def prepare_threads(threads: int) -> None:
    """Creates TVM's pool of threads before any other code does. TVM pins its workers to the second and later cores. The
    calling thread computes too, but TVM does not pin it: this function pins it to the first core.

    Raises:
        RuntimeError: TVM runs another number of threads.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.environ["TVM_NUM_THREADS"] = str(threads)  # by default TVM uses at most half of the cores
    made = tvm_ffi.get_global_func("runtime.NumThreads")()
    if made != threads:
        raise RuntimeError(f"TVM runs {made} threads, but {threads} were requested")
    os.sched_setaffinity(0, cores[:1])


def _multiply(instruction: Instruction, threads: int) -> PrimFunc:
    """(rows, columns, totals): totals[thread, row, column] += rows[repetition % period, row] * columns[column]."""
    width, lanes, stored = instruction.operand_lanes, instruction.lanes, instruction.stored
    rows = tirx.decl_buffer((_PERIOD * ROWS * width,), stored, "rows", data_alignment=64)
    columns = tirx.decl_buffer((COLUMNS * width,), stored, "columns", data_alignment=64)
    totals = tirx.decl_buffer((threads * ROWS * COLUMNS * lanes,), instruction.accumulator, "totals", data_alignment=64)
    thread, repetition = Var("thread", "int32"), Var("repetition", "int32")
    registers = [
        tirx.decl_buffer((lanes,), instruction.accumulator, f"total{index}", scope="local")
        for index in range(ROWS * COLUMNS)
    ]
    positions = [thread * (ROWS * COLUMNS * lanes) + index * lanes for index in range(ROWS * COLUMNS)]

    begin: list[Any] = [AllocBuffer(register, _IN_REGISTERS) for register in registers]
    begin += [
        BufferStore(register, _load(totals, position, lanes), [_span(0, lanes)])
        for register, position in zip(registers, positions, strict=True)
    ]
    column = [Var(f"column{index}", f"{stored}x{width}") for index in range(COLUMNS)]
    begin += [Bind(var, _load(columns, index * width, width)) for index, var in enumerate(column)]
    step: list[Any] = []
    for row in range(ROWS):
        value = Var(f"row{row}", f"{stored}x{width}")
        position = (tirx.bitwise_and(repetition, tirx.const(_PERIOD - 1, "int32")) * ROWS + row) * width
        step.append(Bind(value, _load(rows, position, width)))
        for index in range(COLUMNS):
            register = registers[row * COLUMNS + index]
            total = instruction.apply(_load(register, 0, lanes), value, column[index])
            step.append(BufferStore(register, total, [_span(0, lanes)]))
    loop = For(repetition, int32(0), int32(REPETITIONS), ForKind.SERIAL, SeqStmt(step))
    end = [
        BufferStore(totals, _load(register, 0, lanes), [_span(position, lanes)])
        for register, position in zip(registers, positions, strict=True)
    ]
    kind = ForKind.PARALLEL if threads > 1 else ForKind.SERIAL
    body = For(thread, int32(0), int32(threads), kind, SeqStmt([*begin, loop, *end]))
    if instruction.intrinsic in FUNCTIONS:
        body = AttrStmt(int32(0), "pragma_import_llvm", StringImm(FUNCTIONS[instruction.intrinsic]), body)
    return function_of([rows, columns, totals], body)


def _chain(repetitions: int) -> PrimFunc:
    """Computes state[0] = state[0] * state[1] ^ state[2], repeatedly."""
    state = tirx.decl_buffer((3,), "int64", "state", data_alignment=64)
    register = tirx.decl_buffer((1,), "int64", "x", scope="local")
    repetition, factor, mask = Var("repetition", "int32"), Var("factor", "int64"), Var("mask", "int64")
    step = BufferStore(register, tirx.bitwise_xor(BufferLoad(register, [int32(0)]) * factor, mask), [int32(0)])
    loop = For(repetition, int32(0), int32(repetitions), ForKind.SERIAL, SeqStmt([step] * CLOCK_STEPS))
    return function_of(
        [state],
        SeqStmt(
            [
                AllocBuffer(register, _IN_REGISTERS),
                BufferStore(register, BufferLoad(state, [int32(0)]), [int32(0)]),
                Bind(factor, BufferLoad(state, [int32(1)])),
                Bind(mask, BufferLoad(state, [int32(2)])),
                loop,
                BufferStore(state, BufferLoad(register, [int32(0)]), [int32(0)]),
            ]
        ),
    )


# Without this option, TVM would allocate local buffers on the heap instead of keeping them in registers.
_IN_REGISTERS = {"disable_lower_builtin": tirx.const(1, "bool")}


def function_of(parameters: Sequence[Any], body: Any) -> PrimFunc:
    return PrimFunc(list(parameters), body).with_attr({"global_symbol": "loop", "tirx.noalias": True})


def compiled(function: PrimFunc, cpu: str) -> Any:
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    with tvm.transform.PassContext(config={"tirx.disable_storage_rewrite": True}):
        return tvm.compile(tvm.IRModule({"loop": function}), target=target)


def check_code(code: str, instruction: Instruction) -> None:
    """Checks that every basic block contains a whole repetition, or as many repetitions as LLVM unrolled for this CPU.
    Then no product was moved out of the loop or dropped. `{vex}` and `{evex}` are two encodings of one instruction;
    LLVM mixes them if the CPU has both AVX-VNNI and AVX-512.

    Raises:
        RuntimeError: the code has more or fewer instructions.
    """
    written = re.compile(rf"^\s+(?:{{e?vex}}\s+)?{instruction.mnemonic}\w*\s.*%{instruction.register}", re.MULTILINE)
    blocks = [len(written.findall(block)) for block in re.split(r"^\.LBB\w+:", code, flags=re.MULTILINE)]
    if not any(blocks) or any(count % (ROWS * COLUMNS) for count in blocks):
        raise RuntimeError(
            f"{instruction.name}: a repetition has {ROWS * COLUMNS} of these instructions, but the basic blocks have "
            f"{', '.join(str(count) for count in blocks if count) or 'none'}"
        )


def _stored(instruction: Instruction, values: Array) -> Array:
    """Converts integers to the instruction's operands; bfloat16 operands are the upper halves of float32."""
    if instruction.operand == "bfloat16":
        return np.asarray(values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.asarray(values.astype(instruction.operand))


def _expected(instruction: Instruction, rows: Array, columns: Array) -> Array:
    """Returns `[1, ROWS, COLUMNS, lanes]` int32, wrapped around like the registers."""
    first = rows.reshape(_PERIOD, ROWS, 1, instruction.lanes, -1).astype(np.int64)
    second = columns.reshape(1, 1, COLUMNS, instruction.lanes, -1).astype(np.int64)
    period = (first * second).sum(axis=(0, 4))
    assert REPETITIONS % _PERIOD == 0
    wrapped: Array = (period * (REPETITIONS // _PERIOD)).astype(np.int32)
    return wrapped[None]


def int32(value: int) -> Expr:
    return tirx.const(value, "int32")


def _span(offset: Expr, lanes: int) -> Expr:
    return Ramp(int32(offset) if isinstance(offset, int) else offset, int32(1), lanes)


def _load(buffer: Any, offset: Expr, lanes: int) -> Expr:
    return BufferLoad(buffer, [_span(offset, lanes)])
