"""The instruction `usmmla`: multiplies two neighboring pixels (eight unsigned bytes each) by the weights of two
channels (eight signed bytes each)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle
from service.core.models.arrays import Array

_BYTES, _LANES, _DEPTH = 16, 4, 8
_SIGNED, _TOTALS = f"int8x{_BYTES}", f"int32x{_LANES}"


@dataclass(frozen=True)
class MatrixPairs:
    """Implements `vector.isa.Pairs` with `usmmla`."""

    depth: int = _DEPTH
    weight_elements: int = _LANES * _DEPTH

    def pack_weights(self, weights: Array) -> Array:
        assert weights.min(initial=0) >= -128
        assert weights.max(initial=0) <= 127
        return weights.reshape(*weights.shape[:-2], -1).astype("int8")

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, Expr]:
        first, second = (program.bind(load(buffer, offset + start, _BYTES), _SIGNED) for start in (0, _BYTES))
        return first, second

    def operands(self, program: Program, buffer: Buffer, base: Expr, plane: int, columns: int) -> list[Expr]:
        found = []
        for first in range(0, columns, 4):
            pixels = 4 if columns - first > 2 else 2
            dtype = f"int32x{pixels}"
            near, far = (
                program.bind(bits(dtype, load(buffer, base + (first * _LANES + start), pixels * _LANES)), dtype)
                for start in (0, plane)
            )
            for pixel in range(0, pixels, 2):
                order = [tirx.const(pixel + position, "int32") for position in (0, pixels, 1, pixels + 1)]
                found.append(program.bind(bits(_SIGNED, tirx.Shuffle([near, far], order)), _SIGNED))
        return found

    def multiply(self, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        return intrinsic(_TOTALS, "llvm.aarch64.neon.usmmla", totals, operand, weights)

    def started(self, start: Expr) -> tuple[Expr, Expr]:
        return shuffle(start, (0, 1, 0, 1)), shuffle(start, (2, 3, 2, 3))

    def separate(self, first: Expr, second: Expr) -> tuple[Expr, Expr]:
        return _shuffle_pair(first, second, (0, 1, 4, 5)), _shuffle_pair(first, second, (2, 3, 6, 7))


def _shuffle_pair(first: Expr, second: Expr, lanes: Sequence[int]) -> Expr:
    return tirx.Shuffle([first, second], [tirx.const(lane, "int32") for lane in lanes])
