"""x86's vector instruction sets as data: what a kernel may ask for, and the instructions behind it.

Kernels are written in these words (broadcast, weights, dot, round, pack), so a new instruction set is a new entry
here and not a new kernel. Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; the LLVM
intrinsics' operand types are those of LLVM 22 (`vpdpbusd` takes byte vectors).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.kernel import Array
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat

GROUP = 4  # bytes that one 32-bit lane multiplies at once
PIXELS = 4  # pixels that one packed vector holds


@dataclass(frozen=True)
class Isa:
    """One instruction set.

    Attributes:
        lanes: 32-bit lanes of a vector; also the channels of a block.
        registers: vector registers.
        dots_bytes: whether it multiplies u8 by s8 and adds four products to a lane at once (`vpdpbusd`). Otherwise
            bytes are widened to 16 bits and multiplied by `vpmaddwd`, which is exact too: 255 * 255 * 2 fits.
        names: the LLVM intrinsics.
    """

    name: str
    lanes: int
    registers: int
    dots_bytes: bool

    @property
    def bytes(self) -> int:
        return 4 * self.lanes

    @property
    def weight_dtype(self) -> str:
        return "int8" if self.dots_bytes else "int16"

    @property
    def weight_limits(self) -> tuple[int, int]:
        """Smallest and largest weight that `dot` takes (weights less their zero point reach -255..255)."""
        return (-128, 127) if self.dots_bytes else (-32768, 32767)

    @property
    def weight_vectors(self) -> int:
        """Vectors that hold the weights of one group for one block of channels."""
        return 1 if self.dots_bytes else 2

    @property
    def weight_elements(self) -> int:
        """Elements of `weight_dtype` in the weights of one group for one block of channels."""
        return GROUP * self.lanes

    def pack_weights(self, weights: Array) -> Array:
        """`[…, lanes, 4]` integers -> `[…, 4 * lanes]` in the order that `weights` loads."""
        if not self.dots_bytes:  # even taps of all lanes, then odd ones
            weights = np.stack([weights[..., 0::2], weights[..., 1::2]], axis=-3)
        low, high = self.weight_limits
        assert weights.min(initial=0) >= low
        assert weights.max(initial=0) <= high
        return weights.reshape(*weights.shape[: -3 + self.dots_bytes], -1).astype(self.weight_dtype)

    # --- multiplication ---

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """The weights of one group for one block of channels, from element `offset`."""
        if self.dots_bytes:
            return (program.bind(load(buffer, offset, self.bytes), f"int8x{self.bytes}"),)
        half = 2 * self.lanes
        return tuple(
            program.bind(load(buffer, offset + part * half, half), f"int16x{half}")
            for part in range(self.weight_vectors)
        )

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        """Four bytes from `offset`, in every lane, as `dot` wants them."""
        four = bits("int32", load(buffer, offset, GROUP))
        return self.operand(program, splat(four, self.lanes))

    def places(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        """What `gather` is to take, from byte `offset`: for each of the vector's bytes, a channel of a block."""
        return program.bind(load(buffer, offset, self.bytes), f"int8x{self.bytes}")

    def gather(self, program: Program, buffer: Buffer, offset: Expr, places: Expr) -> tuple[Expr, ...]:
        """In each lane four channels of its own, of the pixel of a block at `offset`, as `dot` wants them.

        Bytes are shuffled within 128 bits, which hold a whole pixel (or two copies of one).

        Args:
            places: from `places`.
        """
        dtype, order = f"int8x{self.bytes}", [tirx.const(byte, "int32") for byte in range(self.bytes)]
        repeated = tirx.Shuffle([load(buffer, offset, self.lanes)] * GROUP, order)
        name = "llvm.x86.avx512.pshuf.b.512" if self.lanes == 16 else "llvm.x86.avx2.pshuf.b"
        return self.operand(program, intrinsic(dtype, name, bits(dtype, repeated), places))

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        """Lanes of four unsigned bytes as `dot` wants them."""
        if self.dots_bytes:
            return (program.bind(bits(f"int8x{self.bytes}", vector), f"int8x{self.bytes}"),)
        half, dtype = 2 * self.lanes, f"int16x{2 * self.lanes}"
        pairs = program.bind(bits(f"uint16x{half}", vector), f"uint16x{half}")
        even = pairs & splat(tirx.const(0xFF, "uint16"), half)
        odd = pairs >> splat(tirx.const(8, "uint16"), half)
        return tuple(program.bind(bits(dtype, part), dtype) for part in (even, odd))

    @property
    def ones(self) -> tuple[Expr, ...]:
        """Weights of 1, so that `dot` sums."""
        elements = self.weight_elements // self.weight_vectors
        return (splat(tirx.const(1, self.weight_dtype), elements),) * self.weight_vectors

    def dot(self, total: Expr, activations: tuple[Expr, ...], weights: tuple[Expr, ...]) -> Expr:
        """`total` plus, in each lane, four products."""
        dtype = f"int32x{self.lanes}"
        for activation, weight in zip(activations, weights, strict=True):
            if self.dots_bytes:
                name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
                total = intrinsic(dtype, name, total, activation, weight)
            else:
                total = self.dot_words(total, activation, weight)
        return total

    def dot_words(self, total: Expr, activation: Expr, weight: Expr) -> Expr:
        """`total` plus, in each lane, two products of 16-bit values."""
        name = "llvm.x86.avx512.pmaddw.d.512" if self.lanes == 16 else "llvm.x86.avx2.pmadd.wd"
        return total + intrinsic(f"int32x{self.lanes}", name, activation, weight)

    # --- conversion ---

    def round_even(self, value: Expr) -> Expr:
        """float32 -> int32, halves to even; what does not fit becomes the smallest integer."""
        dtype = f"int32x{self.lanes}"
        if self.lanes == 16:
            current_mode, all_lanes = tirx.const(4, "int32"), tirx.const(-1, "int16")
            zero = splat(tirx.const(0, "int32"), 16)
            return intrinsic(dtype, "llvm.x86.avx512.mask.cvtps2dq.512", value, zero, all_lanes, current_mode)
        return intrinsic(dtype, "llvm.x86.avx.cvt.ps2dq.256", value)

    def fused(self, x: Expr, y: Expr, z: Expr) -> Expr:
        """x * y + z of float32, rounded once."""
        return intrinsic(f"float32x{self.lanes}", "llvm.fma", x, y, z)

    def rounded(self, product: Expr) -> Expr:
        """A float32 product that is rounded before it is added to: LLVM would join the two, and round once. (It sees
        through a detour by float64.)"""
        return intrinsic(f"float32x{self.lanes}", "llvm.arithmetic.fence", product)

    def widen(self, buffer: Buffer, offset: Expr) -> Expr:
        """One block of channels of one pixel, as int32."""
        return tirx.Cast(f"int32x{self.lanes}", load(buffer, offset, self.lanes))

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        """Four vectors of int32 (four pixels of one block), plus `zero_point`, saturated to bytes, pixel by pixel.

        Args:
            zero_point: int16; None for zero.
        """
        name = "llvm.x86.avx512.packuswb.512" if self.lanes == 16 else "llvm.x86.avx2.packuswb"
        return self._pack_bytes(name, pixels, zero_point)

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        """`pack` with a zero point of 128, which takes one instruction."""
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
        """Packing works within quarters of 128 bits: quarter q then holds channels 4q..4q+3 of all four pixels."""
        quarters = self.lanes // 4
        return [quarter * PIXELS + pixel for pixel in range(PIXELS) for quarter in range(quarters)]

    @property
    def word_order(self) -> Array:
        """`transpose`'s first step: int32 `[lanes]`, which word of its operand each lane takes."""
        quarters = self.lanes // 4
        words = [pixel * quarters + quarter for quarter in range(quarters) for pixel in range(PIXELS)]
        return np.array(words, np.int32)

    def transpose(self, vector: Expr, word_order: Expr) -> Expr:
        """Bytes of four pixels of one block -> in each lane (channel), its four pixels.

        Args:
            word_order: the values of `word_order`, loaded from a buffer. LLVM would merge two shuffles whose orders it
                knows into one of bytes, which costs seven instructions without AVX512-VBMI.
        """
        dtype = f"int32x{self.lanes}"
        name = "llvm.x86.avx512.permvar.si.512" if self.lanes == 16 else "llvm.x86.avx2.permd"
        gathered = intrinsic(dtype, name, bits(dtype, vector), word_order)
        order = [
            16 * quarter + 4 * pixel + channel
            for quarter in range(self.lanes // 4)
            for channel in range(4)
            for pixel in range(PIXELS)
        ]
        return bits(dtype, shuffle(bits(f"uint8x{self.bytes}", gathered), order))


ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        Isa("x86-64-v4+vnni", lanes=16, registers=32, dots_bytes=True),
        Isa("x86-64-v4", lanes=16, registers=32, dots_bytes=False),
        Isa("x86-64-v3+avxvnni", lanes=8, registers=16, dots_bytes=True),
        Isa("x86-64-v3", lanes=8, registers=16, dots_bytes=False),
    )
}
