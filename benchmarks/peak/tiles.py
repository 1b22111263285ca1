"""The loop of an instruction that multiplies tiles, Intel's AMX, with four accumulators to hide its latency.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target.codegen import llvm_get_system_cpu
from tvm.tirx import BufferLoad, Evaluate, For, ForKind, PrimFunc, SeqStmt, Var

from benchmarks.peak.instructions import Instruction
from benchmarks.peak.loops import REPETITIONS, compiled, function_of, int32
from service.core.models.arrays import Array

ROWS, ROW_BYTES = 16, 64  # The size of a tile.
_SIDE = 2  # Two tiles of rows are multiplied by two tiles of columns.
_TILES = 2 * _SIDE + _SIDE * _SIDE
_TILE_BYTES = ROWS * ROW_BYTES
# arch_prctl: a process must request the tile registers before it first uses them.
_SYS_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


class TileLoop:
    """`instruction` on `threads` cores at once; a call repeats it `REPETITIONS` times on each accumulator.

    Raises:
        RuntimeError: the compiler generated other code than intended, the result is wrong, or the kernel refuses the
            tiles.
    """

    def __init__(self, instruction: Instruction, threads: int) -> None:
        if ctypes.CDLL(None).syscall(_SYS_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA):
            raise RuntimeError(f"{instruction.name}: the kernel does not permit the use of tile registers")
        module = compiled(_multiply(instruction, threads), llvm_get_system_cpu())
        written = len(re.findall(rf"^\s+{instruction.mnemonic}\s", module.mod.inspect_source("asm"), re.MULTILINE))
        if written == 0 or written % _SIDE**2:
            raise RuntimeError(
                f"{instruction.name}: a repetition has {_SIDE**2} of these instructions, but the code has {written}"
            )
        operands = np.random.default_rng(0).integers(0, 64, (2 * _SIDE, ROWS, ROW_BYTES)).astype(np.int8)
        totals = np.zeros((threads, _SIDE, _SIDE, ROWS, ROWS), np.int32)
        given = [tvm.runtime.tensor(array) for array in (_configuration(), operands.reshape(-1), totals.reshape(-1))]
        self.macs = threads * REPETITIONS * _SIDE**2 * instruction.macs
        self.call: Callable[[], object] = lambda: module(*given)
        self.call()
        if not (given[2].numpy().reshape(totals.shape) == _expected(operands)).all():
            raise RuntimeError(f"{instruction.name}: the loop's result is wrong")


def _configuration() -> Array:
    """Returns the operand of `ldtilecfg`, in which every tile has its full size."""
    made = np.zeros(64, np.uint8)
    made[0] = 1  # the palette
    made[16 : 16 + 2 * _TILES : 2] = ROW_BYTES
    made[48 : 48 + _TILES] = ROWS
    return made


def _multiply(instruction: Instruction, threads: int) -> PrimFunc:
    """(configuration, operands, totals): totals[thread, row, column] += repetitions * rows[row] * columns[column]."""
    configuration = tirx.decl_buffer((64,), "uint8", "configuration", data_alignment=64)
    operands = tirx.decl_buffer((2 * _SIDE * _TILE_BYTES,), "int8", "operands", data_alignment=64)
    elements = _SIDE**2 * ROWS * ROWS
    totals = tirx.decl_buffer((threads * elements,), "int32", "totals", data_alignment=64)
    thread, repetition = Var("thread", "int32"), Var("repetition", "int32")
    stride = tirx.const(ROW_BYTES, "int64")
    accumulators = [(tile, thread * elements + tile * ROWS * ROWS) for tile in range(_SIDE**2)]
    first = _SIDE**2  # the first register of the operands: rows, then columns
    begin = [_perform("llvm.x86.ldtilecfg", _address(configuration, 0))]
    begin += [
        _perform("llvm.x86.tileloadd64", _tile(tile), _address(totals, position), stride)
        for tile, position in accumulators
    ]
    begin += [
        _perform("llvm.x86.tileloadd64", _tile(first + at), _address(operands, at * _TILE_BYTES), stride)
        for at in range(2 * _SIDE)
    ]
    products = [
        _perform(instruction.intrinsic, _tile(tile), _tile(first + tile // _SIDE), _tile(first + _SIDE + tile % _SIDE))
        for tile in range(_SIDE**2)
    ]
    end = [
        _perform("llvm.x86.tilestored64", _tile(tile), _address(totals, position), stride)
        for tile, position in accumulators
    ]
    loop = For(repetition, int32(0), int32(REPETITIONS), ForKind.SERIAL, SeqStmt(products))
    body = SeqStmt([*begin, loop, *end, _perform("llvm.x86.tilerelease")])
    kind = ForKind.PARALLEL if threads > 1 else ForKind.SERIAL
    return function_of([configuration, operands, totals], For(thread, int32(0), int32(threads), kind, body))


def _expected(operands: Array) -> Array:
    """Returns `[1, _SIDE, _SIDE, ROWS, ROWS]` int32, wrapped around like the registers."""
    rows, columns = operands[:_SIDE].astype(np.int64), operands[_SIDE:].astype(np.int64)
    # In a tile of columns, each row has four neighbouring bytes of each column.
    columns = columns.reshape(_SIDE, ROWS, ROWS, 4).transpose(0, 1, 3, 2).reshape(_SIDE, ROW_BYTES, ROWS)
    wrapped: Array = (rows[:, None] @ columns[None] * REPETITIONS).astype(np.int32)
    return wrapped[None]


def _perform(name: str, *operands: Any) -> Any:
    return Evaluate(tirx.call_llvm_intrin("void", name, *operands))


def _address(buffer: Any, element: Any) -> Any:
    return tirx.address_of(BufferLoad(buffer, [element]))


def _tile(number: int) -> Any:
    return tirx.const(number, "int8")
