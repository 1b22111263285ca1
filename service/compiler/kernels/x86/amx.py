"""AMX: eight tile registers of 16 rows by 64 bytes, and the instruction `tdpbusd`, which multiplies two tiles.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18. A process must request
permission to use tiles from the Linux kernel. The runtime does so when it loads an artifact that requires `amx_tile`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, address, splat
from service.compiler.kernels.vector.rates import MatrixRates
from service.compiler.kernels.x86.rates import AMX_RATES
from service.core.models.arrays import Array

_PALETTE = 1
_ROW_BYTES = 64
# Offsets in the 64 bytes that `ldtilecfg` reads: for each tile, the bytes of a row (16 bits), and the number of rows.
_WIDTHS, _HEIGHTS = 16, 48


@dataclass(frozen=True)
class Amx:
    """Implements `vector.isa.Matrix` with AMX-INT8."""

    rates: MatrixRates
    tiles: int = 8
    rows: int = 16
    depth: int = _ROW_BYTES

    @property
    def weight_bytes(self) -> int:
        return self.rows * _ROW_BYTES

    def pack_weights(self, weights: Array) -> Array:
        """Packs weights. Each row of a tile contains four neighboring bytes of every output channel."""
        *outer, lanes, depth = weights.shape
        assert weights.min(initial=0) >= -128
        assert weights.max(initial=0) <= 127
        fours = weights.astype("int8").reshape(*outer, lanes, depth // 4, 4)
        return fours.swapaxes(-3, -2).reshape(*outer, self.weight_bytes)

    def configure(
        self, program: Program, memory: Buffer, offset: Expr, rows: int, pixel_tiles: Collection[int]
    ) -> None:
        program.store(memory, offset, splat(_byte(0), _ROW_BYTES), _ROW_BYTES)
        program.store(memory, offset, _byte(_PALETTE), 1)
        for tile in range(self.tiles):
            program.store(memory, offset + _WIDTHS + 2 * tile, _byte(_ROW_BYTES), 1)
            height = rows if tile in pixel_tiles else self.rows
            program.store(memory, offset + _HEIGHTS + tile, _byte(height), 1)
        program.perform("llvm.x86.ldtilecfg", address(memory, offset))

    def release(self, program: Program) -> None:
        program.perform("llvm.x86.tilerelease")

    def zero(self, program: Program, tile: int) -> None:
        program.perform("llvm.x86.tilezero", _number(tile))

    def load(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        where = address(buffer, offset), tirx.const(stride, "int64")
        program.perform("llvm.x86.tileloadd64", _number(tile), *where)

    def store(self, program: Program, tile: int, buffer: Buffer, offset: Expr, stride: int) -> None:
        where = address(buffer, offset), tirx.const(stride, "int64")
        program.perform("llvm.x86.tilestored64", _number(tile), *where)

    def multiply(self, program: Program, totals: int, activations: int, weights: int) -> None:
        program.perform("llvm.x86.tdpbusd", _number(totals), _number(activations), _number(weights))


def _byte(value: int) -> Expr:
    return tirx.const(value, "uint8")


def _number(tile: int) -> Expr:
    return tirx.const(tile, "int8")


AMX = Amx(AMX_RATES)
