"""The common part of ARM's instruction sets: vectors of 128 bits, and everything except products of bytes.

Sources: Arm Architecture Reference Manual for A-profile, part C7; the intrinsics' operand types are those of LLVM 22.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arm.fixed_point import NeonFixedPoint
from service.compiler.kernels.arm.table import Lookup
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.compiler.kernels.vector.bfloat16 import FusedBFloat16
from service.compiler.kernels.vector.isa import PIXELS
from service.compiler.kernels.vector.rates import Rates
from service.core.models.arrays import Array

LANES = 4
BYTES = 16
GROUP = 4  # the number of bytes that one instruction multiplies for a 32-bit lane
VECTOR = f"uint8x{BYTES}"


@dataclass(frozen=True)
class Neon:
    """The part of an `Isa` that does not depend on how bytes are multiplied.

    A vector of bytes contains a block of four channels of four pixels, in the same order as in memory. So packing needs
    no permutation.
    """

    name: str
    rates: Rates
    lanes: int = LANES
    registers: int = 28  # the other four of the 32 registers are for temporaries
    group: int = GROUP
    matrix: None = None

    @property
    def bytes(self) -> int:
        return BYTES

    @property
    def fixed_point(self) -> NeonFixedPoint:
        return NeonFixedPoint()

    @property
    def bfloat16(self) -> FusedBFloat16:
        return FusedBFloat16(LANES)

    @property
    def weight_elements(self) -> int:
        return GROUP * LANES

    # --- multiplication ---

    def gather_indices(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        return program.bind(load(buffer, offset, BYTES), f"int8x{BYTES}")

    def operands(
        self, program: Program, buffer: Buffer, base: Expr, steps: Sequence[int]
    ) -> Iterator[tuple[Expr, ...]]:
        """Loads four or two contiguous groups with one load, because instructions can multiply by an element of a
        vector.
        """
        first = 0
        while first < len(steps):
            near = [step == steps[first] + GROUP * index for index, step in enumerate(steps[first : first + PIXELS])]
            count = PIXELS if len(near) == PIXELS and all(near) else 2 if all(near[:2]) and len(near) > 1 else 1
            if count == 1:
                yield self.broadcast(program, buffer, base + steps[first])
            else:
                yield from self._side_by_side(program, buffer, base + steps[first], count)
            first += count

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        raise NotImplementedError

    def _side_by_side(self, program: Program, buffer: Buffer, offset: Expr, count: int) -> Iterator[tuple[Expr, ...]]:
        """Yields the operands of `count` contiguous groups."""
        raise NotImplementedError

    def _gathered(self, buffer: Buffer, offset: Expr, indices: Expr) -> Expr:
        """Returns, for each index, the byte of the pixel at `offset` with that index."""
        pixel = bits(f"int8x{BYTES}", splat(bits("int32", load(buffer, offset, LANES)), LANES))
        return bits(VECTOR, intrinsic(f"int8x{BYTES}", "llvm.aarch64.neon.tbl1", pixel, indices))

    def dot_int16(self, accumulator: Expr, operand: Expr, weights: Expr) -> Expr:
        dtype, halves = f"int32x{LANES}", (range(LANES), range(LANES, 2 * LANES))
        products = [
            intrinsic(dtype, "llvm.aarch64.neon.smull", shuffle(operand, half), shuffle(weights, half))
            for half in halves
        ]
        return accumulator + intrinsic(dtype, "llvm.aarch64.neon.addp", *products)

    def round_product(self, x: Expr, y: Expr) -> Expr:
        """Uses `sqrdmulh`, which computes the equal value (2 * x * y + 2**15) >> 16. The instruction saturates only if
        both factors are -32768.
        """
        return intrinsic(f"int16x{2 * LANES}", "llvm.aarch64.neon.sqrdmulh", x, y)

    # --- conversion ---

    def round_even(self, value: Expr) -> Expr:
        return intrinsic(f"int32x{LANES}", "llvm.aarch64.neon.fcvtns", value)

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        return self._narrow("uint8", "llvm.aarch64.neon.sqxtun", self._words(pixels, zero_point))

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        packed = self._narrow("int8", "llvm.aarch64.neon.sqxtn", self._words(pixels, None))
        return bits(VECTOR, packed) ^ splat(tirx.const(0x80, "uint8"), BYTES)

    def _words(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> list[Expr]:
        name, dtype = "llvm.aarch64.neon.sqxtn", f"int16x{2 * LANES}"
        words = [self._narrow("int16", name, pixels[first : first + 2]) for first in (0, 2)]
        if zero_point is None:
            return words
        return [intrinsic(dtype, "llvm.sadd.sat", word, splat(zero_point, 2 * LANES)) for word in words]

    def _narrow(self, dtype: str, name: str, halves: tuple[Expr, ...] | list[Expr]) -> Expr:
        """Narrows the lanes of two vectors to one vector."""
        lanes = 16 if dtype.endswith("int8") else 8
        narrow = [intrinsic(f"{dtype}x{lanes // 2}", name, half) for half in halves]
        return tirx.Shuffle(narrow, [tirx.const(lane, "int32") for lane in range(lanes)])

    @property
    def transpose_indices(self) -> Array:
        return np.zeros(LANES, np.int32)

    # --- tables ---

    def arrange_table(self, values: Array) -> Array:
        return values

    def lookup(self, program: Program, entries: Buffer, offset: Expr = 0) -> Lookup:
        return Lookup.of(program, entries, offset)
