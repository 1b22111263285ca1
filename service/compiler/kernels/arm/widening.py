"""ARMv8.0, which lacks dot products. Bytes are widened to 16 bits, and `smlal` multiplies one byte of a group by the
weights of four output channels at a time (the `vmlal` of Jain et al. 2020)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arm.neon import GROUP, LANES, VECTOR, Neon
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.compiler.kernels.vector.isa import FULL
from service.core.models.arrays import Array

_HALF, _WORDS = f"int16x{LANES}", f"int16x{2 * LANES}"


@dataclass(frozen=True)
class Widening(Neon):
    """An instruction set that multiplies bytes as 16-bit values.

    An operand and its weights are four vectors of four 16-bit values: one vector for each byte of a group. Every
    product is added directly to a 32-bit accumulator, so no intermediate sum overflows. Weights minus their zero point
    may be -255..255.
    """

    weight_dtype: str = "int16"
    weight_limits: tuple[int, int] = (-32768, 32767)
    weight_vectors: int = 2
    operand_zero_point: int = 0
    pairs: None = None
    unrolled: int = 1  # with more groups, LLVM computes all of them at once, and spills registers

    def pack_weights(self, weights: Array) -> Array:
        low, high = self.weight_limits
        assert weights.min(initial=0) >= low
        assert weights.max(initial=0) <= high
        return np.swapaxes(weights, -1, -2).reshape(*weights.shape[:-2], -1).astype("int16")

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        pairs = (program.bind(load(buffer, offset + start, 2 * LANES), _WORDS) for start in (0, 2 * LANES))
        return tuple(half for pair in pairs for half in _halves(pair))

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        words, byte = program.bind(bits(_WORDS, vector), _WORDS), splat(tirx.const(8, "int16"), 2 * LANES)
        return self._by_tap(program, (words << byte) >> byte, words >> byte)

    @property
    def ones(self) -> tuple[Expr, ...]:
        return (splat(tirx.const(1, "int16"), LANES),) * GROUP

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        wide = program.bind(tirx.Cast(_HALF, load(buffer, offset, GROUP)), _HALF)
        return tuple(shuffle(wide, [index] * LANES) for index in range(GROUP))

    def _side_by_side(self, program: Program, buffer: Buffer, offset: Expr, count: int) -> Iterator[tuple[Expr, ...]]:
        loaded = program.bind(load(buffer, offset, GROUP * count), f"uint8x{GROUP * count}")
        for first in range(0, count, 2):
            wide = self._widened(program, loaded, GROUP * first)
            for start in (0, GROUP):
                yield tuple(shuffle(wide, [start + index] * LANES) for index in range(GROUP))

    def _widened(self, program: Program, vector: Expr, first: int) -> Expr:
        """Widens eight bytes of a vector to 16 bits."""
        return program.bind(tirx.Cast(_WORDS, shuffle(vector, range(first, first + 2 * LANES))), _WORDS)

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Widens the bytes in memory order: each pixel's four channels are already one vector of the operand."""
        vector = program.bind(vector, VECTOR)
        return tuple(half for first in (0, 2 * LANES) for half in _halves(self._widened(program, vector, first)))

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        return self.operand(program, self._gathered(buffer, offset, indices))

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        unsigned = f"uint16x{2 * LANES}"
        pairs = program.bind(bits(unsigned, vector), unsigned)
        even = pairs & splat(tirx.const(0xFF, "uint16"), 2 * LANES)
        odd = pairs >> splat(tirx.const(8, "uint16"), 2 * LANES)
        return self._by_tap(program, bits(_WORDS, even), bits(_WORDS, odd))

    def _by_tap(self, program: Program, even: Expr, odd: Expr) -> tuple[Expr, ...]:
        """Converts two vectors, with bytes 0 and 2 and with bytes 1 and 3 of all lanes, to one vector for each byte."""
        both = [program.bind(even, _WORDS), program.bind(odd, _WORDS)]
        low, high = (
            program.bind(tirx.Shuffle(both, [tirx.const(lane, "int32") for lane in range(first, 4 * LANES, 2)]), _WORDS)
            for first in (0, 1)
        )
        return *_halves(low), *_halves(high)

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], positions: Collection[int] = FULL
    ) -> Expr:
        for position in positions:
            product = intrinsic(f"int32x{LANES}", "llvm.aarch64.neon.smull", weights[position], operand[position])
            accumulator = accumulator + product
        return accumulator


def _halves(vector: Expr) -> tuple[Expr, Expr]:
    return shuffle(vector, range(LANES)), shuffle(vector, range(LANES, 2 * LANES))
