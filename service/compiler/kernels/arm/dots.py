"""Instruction sets with dot products of bytes: `sdot` (signed by signed) or `usdot` (unsigned by signed)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.arm.neon import BYTES, GROUP, LANES, Neon
from service.compiler.kernels.arm.pairs import MatrixPairs
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.compiler.kernels.vector.isa import FULL, PIXELS
from service.core.models.arrays import Array

_SIGNED = f"int8x{BYTES}"
_HIGHEST = 0x80


@dataclass(frozen=True)
class Dots(Neon):
    """An instruction set with dot products of bytes.

    Attributes:
        pairs: the instructions on pairs of pixels; None if there are none.
        mixed: true if `usdot` multiplies unsigned by signed bytes. Otherwise operands are converted to signed bytes for
            `sdot`.
    """

    mixed: bool = False
    pairs: MatrixPairs | None = None
    weight_dtype: str = "int8"
    weight_limits: tuple[int, int] = (-128, 127)
    weight_vectors: int = 1
    unrolled: int = 4

    @property
    def operand_zero_point(self) -> int:
        return 0 if self.mixed else _HIGHEST

    def pack_weights(self, weights: Array) -> Array:
        low, high = self.weight_limits
        assert weights.min(initial=0) >= low
        assert weights.max(initial=0) <= high
        return weights.reshape(*weights.shape[:-2], -1).astype("int8")

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        return (program.bind(load(buffer, offset, BYTES), _SIGNED),)

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        return (program.bind(bits(_SIGNED, vector), _SIGNED),)

    @property
    def ones(self) -> tuple[Expr, ...]:
        return (splat(tirx.const(1, "int8"), BYTES),)

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        return self.operand(program, splat(bits("int32", load(buffer, offset, GROUP)), LANES))

    def _side_by_side(self, program: Program, buffer: Buffer, offset: Expr, count: int) -> Iterator[tuple[Expr, ...]]:
        size = GROUP * count
        value = bits(f"int8x{size}", load(buffer, offset, size))
        if not self.mixed:
            value = value ^ splat(tirx.const(_HIGHEST - 256, "int8"), size)
        groups = [program.bind(bits(f"int32x{count}", value), f"int32x{count}")] * (LANES // count)
        positions = ([tirx.const(position, "int32")] * LANES for position in range(count))
        return ((bits(_SIGNED, tirx.Shuffle(groups, position)),) for position in positions)

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        return self.operand(program, self._gathered(buffer, offset, indices))

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        value = bits(_SIGNED, vector)
        if not self.mixed:
            value = value ^ splat(tirx.const(_HIGHEST - 256, "int8"), BYTES)
        return (program.bind(value, _SIGNED),)

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        """Transposes with one `tbl`. LLVM loads its indices before the loop."""
        order = [channel + pixel * LANES for channel in range(LANES) for pixel in range(PIXELS)]
        return self.operand(program, shuffle(vector, order))

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], positions: Collection[int] = FULL
    ) -> Expr:
        """Multiplies and adds.

        LLVM then uses the form of the instruction that broadcasts one element of a vector. For this, the broadcast
        operand must be the second factor of `sdot`, or the first factor of `usdot`.
        """
        if self.mixed:
            return intrinsic(f"int32x{LANES}", "llvm.aarch64.neon.usdot", accumulator, *operand, *weights)
        return intrinsic(f"int32x{LANES}", "llvm.aarch64.neon.sdot", accumulator, *weights, *operand)
