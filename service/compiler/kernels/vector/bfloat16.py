"""Implements `isa.BFloat16` with float32 products, for instruction sets that cannot multiply bfloat16 pairs.

The results equal those of `qnn.numerics.sums.bfloat16` bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, Program, bits, intrinsic, splat

_MAGNITUDE, _SIGN, _UPPER = 0x7FFFFFFF, 0x80000000, 0xFFFF0000
_EXPONENT, _LEAST_NORMAL, _QUIET = 0x7F800000, 0x00800000, 0x00400000


@dataclass(frozen=True)
class FusedBFloat16:
    """Products of bfloat16 pairs on vectors of `lanes` float32."""

    lanes: int

    def words(self, program: Program, values: Expr) -> Expr:
        value = program.bind(bits(f"uint32x{self.lanes}", values), f"uint32x{self.lanes}")
        magnitude = value & self._const(_MAGNITUDE)
        nearest = value + self._const(0x7FFF) + ((value >> self._const(16)) & self._const(1))
        nearest = tirx.Select(magnitude > self._const(_EXPONENT), value | self._const(_QUIET), nearest)
        nearest = tirx.Select(magnitude < self._const(_LEAST_NORMAL), value & self._const(_SIGN), nearest)
        return tirx.Cast(f"uint16x{self.lanes}", nearest >> self._const(16))

    def add_products(self, program: Program, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        dtype = f"uint32x{self.lanes}"
        pairs = [program.bind(bits(dtype, vector), dtype) for vector in (operand, weights)]
        firsts, seconds = ([part(pair) for pair in pairs] for part in (self._first, self._second))
        for factors in (seconds, firsts):
            totals = self._flushed(program, intrinsic(f"float32x{self.lanes}", "llvm.fma", *factors, totals))
        return totals

    def _first(self, pair: Expr) -> Expr:
        return bits(f"float32x{self.lanes}", pair << self._const(16))

    def _second(self, pair: Expr) -> Expr:
        return bits(f"float32x{self.lanes}", pair & self._const(_UPPER))

    def _flushed(self, program: Program, total: Expr) -> Expr:
        value = program.bind(bits(f"uint32x{self.lanes}", total), f"uint32x{self.lanes}")
        is_small = (value & self._const(_MAGNITUDE)) < self._const(_LEAST_NORMAL)
        kept = tirx.Select(is_small, value & self._const(_SIGN), value)
        return program.bind(bits(f"float32x{self.lanes}", kept), f"float32x{self.lanes}")

    def _const(self, value: int) -> Expr:
        return splat(tirx.const(value, "uint32"), self.lanes)
