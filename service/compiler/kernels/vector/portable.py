"""A portable instruction set: 128-bit vectors in TVM's own operations, without the intrinsics of any CPU.

The portable instruction set implements `Isa`, and shares no other property with x86. A kernel family that relied on
another property of x86 would not compile for this instruction set, or would compute wrong results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.tirx import BufferLoad

from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, shuffle, splat
from service.compiler.kernels.vector.bfloat16 import FusedBFloat16
from service.compiler.kernels.vector.fixed_point import WideFixedPoint
from service.compiler.kernels.vector.isa import FULL, PIXELS
from service.compiler.kernels.vector.rates import DepthwiseRates, EpilogueRates, Rates
from service.core.models.arrays import Array

_RATES = Rates(
    dot=4.0,
    load=1.0,
    together=1,
    operand=0.0,
    gather=4.0,
    latency=4.0,
    near_bytes=16 * 1024,
    far_load=2.0,
    overlap=0.1,
    tile=10.0,
    sharing=10_000.0,
    elementwise=8.0,
    resize=40.0,
    epilogue=EpilogueRates(float_scale=2.0, fixed_point=6.0, exception=1.0, residual=6.0, wide=1.5, int16=16.0),
    depthwise=DepthwiseRates(
        transpose=2.0, dot=4.0, requantize=3.5, pack=5.0, tile=12.0, free_accumulators=24, crowding=0.0
    ),
)


@dataclass(frozen=True)
class PortableIsa:
    """An `Isa` with four lanes."""

    name: str = "portable"
    lanes: int = 4
    registers: int = 32
    group: int = 4
    operand_zero_point: int = 0
    unrolled: int = 4
    rates: Rates = _RATES
    matrix: None = None
    pairs: None = None
    weight_dtype: str = "int8"
    weight_limits: tuple[int, int] = (-128, 127)
    weight_vectors: int = 1

    @property
    def bytes(self) -> int:
        return 4 * self.lanes

    @property
    def bfloat16(self) -> FusedBFloat16:
        return FusedBFloat16(self.lanes)

    @property
    def fixed_point(self) -> WideFixedPoint:
        return WideFixedPoint(self.lanes)

    @property
    def weight_elements(self) -> int:
        return self.group * self.lanes

    def pack_weights(self, weights: Array) -> NDArray[np.int8]:
        return weights.reshape(*weights.shape[:-2], -1).astype(np.int8)

    def weights(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        return (program.bind(load(buffer, offset, self.bytes), f"int8x{self.bytes}"),)

    def computed_weights(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        return (program.bind(bits(f"int8x{self.bytes}", vector), f"int8x{self.bytes}"),)

    @property
    def ones(self) -> tuple[Expr, ...]:
        return (splat(tirx.const(1, "int8"), self.bytes),)

    def broadcast(self, program: Program, buffer: Buffer, offset: Expr) -> tuple[Expr, ...]:
        return self.operand(program, splat(bits("int32", load(buffer, offset, self.group)), self.lanes))

    def operands(
        self, program: Program, buffer: Buffer, base: Expr, steps: Sequence[int]
    ) -> Iterator[tuple[Expr, ...]]:
        return (self.broadcast(program, buffer, base + step) for step in steps)

    def gather_indices(self, program: Program, buffer: Buffer, offset: Expr) -> Expr:
        return program.bind(load(buffer, offset, self.bytes), f"int8x{self.bytes}")

    def gather(self, program: Program, buffer: Buffer, offset: Expr, indices: Expr) -> tuple[Expr, ...]:
        at = splat(offset, self.bytes) + tirx.Cast(f"int32x{self.bytes}", indices)
        return self.operand(program, BufferLoad(buffer, [at]))

    def operand(self, program: Program, vector: Expr) -> tuple[Expr, ...]:
        return (program.bind(bits(f"uint8x{self.bytes}", vector), f"uint8x{self.bytes}"),)

    def dot(
        self, accumulator: Expr, operand: tuple[Expr, ...], weights: tuple[Expr, ...], positions: Collection[int] = FULL
    ) -> Expr:
        wide = f"int32x{self.bytes}"
        products = tirx.Cast(wide, operand[0]) * tirx.Cast(wide, weights[0])
        return self._summed(accumulator, products, self.group)

    def dot_int16(self, accumulator: Expr, operand: Expr, weights: Expr) -> Expr:
        wide = f"int32x{2 * self.lanes}"
        return self._summed(accumulator, tirx.Cast(wide, operand) * tirx.Cast(wide, weights), 2)

    def round_product(self, x: Expr, y: Expr) -> Expr:
        wide, size = f"int32x{2 * self.lanes}", 2 * self.lanes
        half, count = (splat(tirx.const(value, "int32"), size) for value in (1 << 14, 15))
        return tirx.Cast(f"int16x{size}", (tirx.Cast(wide, x) * tirx.Cast(wide, y) + half) >> count)

    def _summed(self, accumulator: Expr, products: Expr, count: int) -> Expr:
        for index in range(count):
            accumulator = accumulator + shuffle(products, range(index, count * self.lanes, count))
        return accumulator

    def round_even(self, value: Expr) -> Expr:
        dtype, least = f"float32x{self.lanes}", splat(tirx.const(-(2.0**31), "float32"), self.lanes)
        return tirx.Cast(f"int32x{self.lanes}", intrinsic(dtype, "llvm.rint", tirx.max(value, least)))

    def pack(self, pixels: tuple[Expr, Expr, Expr, Expr], zero_point: Expr | None) -> Expr:
        moved = splat(tirx.const(0, "int32") if zero_point is None else tirx.Cast("int32", zero_point), self.lanes)
        return self._concatenate([self._byte(pixel, moved) for pixel in pixels])

    def pack_centred(self, pixels: tuple[Expr, Expr, Expr, Expr]) -> Expr:
        return self.pack(pixels, tirx.const(128, "int16"))

    def _byte(self, value: Expr, zero_point: Expr) -> Expr:
        def bound(limit: int) -> Expr:
            return splat(tirx.const(limit, "int32"), self.lanes)

        near = tirx.max(tirx.min(value, bound(32767)), bound(-32768)) + zero_point
        return tirx.Cast(f"uint8x{self.lanes}", tirx.max(tirx.min(near, bound(255)), bound(0)))

    def _concatenate(self, vectors: list[Expr]) -> Expr:
        return tirx.Shuffle(vectors, [tirx.const(index, "int32") for index in range(len(vectors) * self.lanes)])

    @property
    def transpose_indices(self) -> NDArray[np.int32]:
        return np.zeros(self.lanes, np.int32)

    def transposed(self, program: Program, vector: Expr, indices: Expr) -> tuple[Expr, ...]:
        order = [channel + pixel * self.lanes for channel in range(self.lanes) for pixel in range(PIXELS)]
        return self.operand(program, shuffle(vector, order))

    def arrange_table(self, values: Array) -> Array:
        return values

    def lookup(self, program: Program, entries: Buffer, offset: Expr = 0) -> _Lookup:
        return _Lookup(entries, offset)


@dataclass(frozen=True)
class _Lookup:
    entries: Buffer
    offset: Expr

    def __call__(self, vector: Expr, lanes: int) -> Expr:
        at = tirx.Cast(f"int32x{lanes}" if lanes > 1 else "int32", vector)
        start = tirx.const(self.offset, "int32") if isinstance(self.offset, int) else self.offset
        return BufferLoad(self.entries, [at + (splat(start, lanes) if lanes > 1 else start)])
