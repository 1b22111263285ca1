"""x86-64's vector instruction sets, which implement `vector.isa.Isa`: AVX2 and AVX-512, with or without byte products.

Two extensions of AVX512-VNNI are in their own modules: AMX's tiles (`x86.amx`) and products of bfloat16 pairs
(`x86.bfloat16`).

A new instruction set is an entry in `ISAS` and needs no new kernels. Sources: Intel 64 and IA-32 Architectures Software
Developer's Manual, volume 2; the operand types of LLVM intrinsics are those of LLVM 22 (`vpdpbusd` takes byte vectors).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.compiler.kernels.vector.bfloat16 import FusedBFloat16
from service.compiler.kernels.vector.fixed_point import WideFixedPoint
from service.compiler.kernels.vector.isa import FULL, PIXELS, BFloat16
from service.compiler.kernels.vector.rates import Rates
from service.compiler.kernels.x86.amx import AMX, Amx
from service.compiler.kernels.x86.bfloat16 import Avx512BFloat16
from service.compiler.kernels.x86.rates import RATES
from service.compiler.kernels.x86.table import Lookup, arranged
from service.core.models.arrays import Array

GROUP = 4  # the number of bytes that one instruction multiplies for a 32-bit lane


@dataclass(frozen=True)
class X86Isa:
    """An instruction set of x86-64, as an `Isa`.

    Attributes:
        dots_bytes: true if an instruction multiplies u8 by s8 and adds four products to a lane (`vpdpbusd`). Otherwise
            bytes are widened to 16 bits and multiplied with `vpmaddwd`, which is exact too: 255 * 255 * 2 fits.
        matrix: AMX's tiles, or None.
        pairs_bfloat16: true if an instruction multiplies pairs of bfloat16 (`vdpbf16ps`).
    """

    name: str
    lanes: int
    registers: int
    dots_bytes: bool
    rates: Rates
    matrix: Amx | None = None
    pairs_bfloat16: bool = False
    pairs: None = None
    group: int = GROUP
    operand_zero_point: int = 0
    unrolled: int = 4

    @property
    def bytes(self) -> int:
        return 4 * self.lanes

    @property
    def fixed_point(self) -> WideFixedPoint:
        return WideFixedPoint(self.lanes)

    @property
    def bfloat16(self) -> BFloat16:
        return Avx512BFloat16() if self.pairs_bfloat16 else FusedBFloat16(self.lanes)

    @property
    def weight_dtype(self) -> str:
        return "int8" if self.dots_bytes else "int16"

    @property
    def weight_limits(self) -> tuple[int, int]:
        return (-128, 127) if self.dots_bytes else (-32768, 32767)

    @property
    def weight_vectors(self) -> int:
        return 1 if self.dots_bytes else 2

    @property
    def weight_elements(self) -> int:
        return GROUP * self.lanes

    def pack_weights(self, weights: Array) -> Array:
        if not self.dots_bytes:  # the even weights of each group for all lanes, then the odd weights
            weights = np.stack([weights[..., 0::2], weights[..., 1::2]], axis=-3)
        low, high = self.weight_limits
        assert weights.min(initial=0) >= low
        assert weights.max(initial=0) <= high
        return weights.reshape(*weights.shape[: -3 + self.dots_bytes], -1).astype(self.weight_dtype)

    # --- multiplication ---

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        if self.dots_bytes:
            return (program.bind(load(buffer, offset, self.bytes), f"int8x{self.bytes}"),)
        half = 2 * self.lanes
        return tuple(
            program.bind(load(buffer, offset + part * half, half), f"int16x{half}")
            for part in range(self.weight_vectors)
        )

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        four = bits("int32", load(buffer, offset, GROUP))
        return self.operand(program, splat(four, self.lanes))

    def operands(
        self, program: Program, buffer: Buffer, base: Expr, steps: Sequence[int]
    ) -> Iterator[tuple[Expr, ...]]:
        return (self.broadcast(program, buffer, base + step) for step in steps)

    def gather_indices(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        return program.bind(load(buffer, offset, self.bytes), f"int8x{self.bytes}")

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Shuffles bytes within each 128 bits. These contain one block of a pixel, or two copies of a smaller block."""
        dtype, order = f"int8x{self.bytes}", [tirx.const(byte, "int32") for byte in range(self.bytes)]
        repeated = tirx.Shuffle([load(buffer, offset, self.lanes)] * GROUP, order)
        name = "llvm.x86.avx512.pshuf.b.512" if self.lanes == 16 else "llvm.x86.avx2.pshuf.b"
        return self.operand(program, intrinsic(dtype, name, bits(dtype, repeated), indices))

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        if self.dots_bytes:
            return (program.bind(bits(f"int8x{self.bytes}", vector), f"int8x{self.bytes}"),)
        half, dtype = 2 * self.lanes, f"int16x{2 * self.lanes}"
        pairs = program.bind(bits(f"uint16x{half}", vector), f"uint16x{half}")
        even = pairs & splat(tirx.const(0xFF, "uint16"), half)
        odd = pairs >> splat(tirx.const(8, "uint16"), half)
        return tuple(program.bind(bits(dtype, part), dtype) for part in (even, odd))

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        if self.dots_bytes:
            return (program.bind(bits(f"int8x{self.bytes}", vector), f"int8x{self.bytes}"),)
        half, dtype = 2 * self.lanes, f"int16x{2 * self.lanes}"
        pairs, byte = program.bind(bits(dtype, vector), dtype), splat(tirx.const(8, "int16"), half)
        return program.bind((pairs << byte) >> byte, dtype), program.bind(pairs >> byte, dtype)

    @property
    def ones(self) -> tuple[Expr, ...]:
        elements = self.weight_elements // self.weight_vectors
        return (splat(tirx.const(1, self.weight_dtype), elements),) * self.weight_vectors

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], positions: Collection[int] = FULL
    ) -> Expr:
        dtype = f"int32x{self.lanes}"
        for activation, weight in zip(operand, weights, strict=True):
            if self.dots_bytes:
                name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
                accumulator = intrinsic(dtype, name, accumulator, activation, weight)
            else:
                accumulator = self.dot_int16(accumulator, activation, weight)
        return accumulator

    def dot_int16(self, accumulator: Expr, operand: Expr, weights: Expr) -> Expr:
        """Multiplies and adds. LLVM combines both operations to one `vpdpwssd` if the target has this instruction."""
        name = "llvm.x86.avx512.pmaddw.d.512" if self.lanes == 16 else "llvm.x86.avx2.pmadd.wd"
        return accumulator + intrinsic(f"int32x{self.lanes}", name, operand, weights)

    def round_product(self, x: Expr, y: Expr) -> Expr:
        name = "llvm.x86.avx512.pmul.hr.sw.512" if self.lanes == 16 else "llvm.x86.avx2.pmul.hr.sw"
        return intrinsic(f"int16x{2 * self.lanes}", name, x, y)

    # --- conversion ---

    def round_even(self, value: Expr) -> Expr:
        """Rounds halves to even. Values beyond int32 on either side become the smallest integer."""
        dtype = f"int32x{self.lanes}"
        if self.lanes == 16:
            current_mode, all_lanes = tirx.const(4, "int32"), tirx.const(-1, "int16")
            zero = splat(tirx.const(0, "int32"), 16)
            return intrinsic(dtype, "llvm.x86.avx512.mask.cvtps2dq.512", value, zero, all_lanes, current_mode)
        return intrinsic(dtype, "llvm.x86.avx.cvt.ps2dq.256", value)

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        name = "llvm.x86.avx512.packuswb.512" if self.lanes == 16 else "llvm.x86.avx2.packuswb"
        return self._pack_bytes(name, pixels, zero_point)

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        """Packs to signed bytes, and flips their highest bit, which adds the zero point of 128."""
        name = "llvm.x86.avx512.packsswb.512" if self.lanes == 16 else "llvm.x86.avx2.packsswb"
        return self._pack_bytes(name, pixels, None) ^ splat(tirx.const(0x80, "uint8"), self.bytes)

    def _pack_bytes(self, name: str, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        halves = [
            self._pack_words(pixels[0], pixels[1], zero_point),
            self._pack_words(pixels[2], pixels[3], zero_point),
        ]
        packed = intrinsic(f"int8x{self.bytes}", name, *halves)
        return bits(f"uint8x{self.bytes}", shuffle(bits(f"int32x{self.lanes}", packed), self._pixel_order))

    def _pack_words(self, low: Expr, high: Expr, zero_point: Expr | None) -> Expr:
        dtype = f"int16x{2 * self.lanes}"
        name = "llvm.x86.avx512.packssdw.512" if self.lanes == 16 else "llvm.x86.avx2.packssdw"
        words = intrinsic(dtype, name, low, high)
        if zero_point is None:
            return words
        return intrinsic(dtype, "llvm.sadd.sat", words, splat(zero_point, 2 * self.lanes))

    @property
    def _pixel_order(self) -> list[int]:
        """The lane order that sorts packed bytes by pixel.

        The pack instructions work within each 128 bits. After them, the 128 bits number q contain channels 4q..4q+3 of
        all four pixels.
        """
        quarters = self.lanes // 4
        return [quarter * PIXELS + pixel for pixel in range(PIXELS) for quarter in range(quarters)]

    @property
    def transpose_indices(self) -> Array:
        """The indices of the first shuffle of `transposed`: for each lane, the index of the 32 bits that it gets."""
        quarters = self.lanes // 4
        words = [pixel * quarters + quarter for quarter in range(quarters) for pixel in range(PIXELS)]
        return np.array(words, np.int32)

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Transposes with two shuffles.

        The indices are loaded from a buffer. If they were constants in the code, LLVM would combine both shuffles to
        one byte shuffle, which needs seven instructions without AVX512-VBMI.
        """
        dtype = f"int32x{self.lanes}"
        name = "llvm.x86.avx512.permvar.si.512" if self.lanes == 16 else "llvm.x86.avx2.permd"
        gathered = intrinsic(dtype, name, bits(dtype, vector), indices)
        order = [
            16 * quarter + 4 * pixel + channel
            for quarter in range(self.lanes // 4)
            for channel in range(4)
            for pixel in range(PIXELS)
        ]
        return self.operand(program, bits(dtype, shuffle(bits(f"uint8x{self.bytes}", gathered), order)))

    # --- tables ---

    def arrange_table(self, values: Array) -> Array:
        return arranged(self.lanes, values)

    def lookup(self, program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        return Lookup.of(program, self.lanes, entries, offset)


def _isa(
    name: str,
    lanes: int,
    registers: int,
    *,
    dots_bytes: bool,
    matrix: Amx | None = None,
    pairs_bfloat16: bool = False,
) -> X86Isa:
    return X86Isa(name, lanes, registers, dots_bytes, RATES[name], matrix, pairs_bfloat16)


ISAS: dict[str, X86Isa] = {
    isa.name: isa
    for isa in (
        _isa("x86-64-v4+amx", 16, 32, dots_bytes=True, matrix=AMX),
        _isa("x86-64-v4+vnni", 16, 32, dots_bytes=True),
        _isa("x86-64-v4+vnni+bf16", 16, 32, dots_bytes=True, pairs_bfloat16=True),
        _isa("x86-64-v4", 16, 32, dots_bytes=False),
        _isa("x86-64-v3+avxvnni", 8, 16, dots_bytes=True),
        _isa("x86-64-v3", 8, 16, dots_bytes=False),
    )
}
