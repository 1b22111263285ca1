"""RISC-V's vector instructions, as `vector.isa.Isa`. LLVM makes them of the portable vectors, whose 128 bits every CPU
with V 1.0 has (Zvl128b); longer registers are used in part.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, intrinsic, splat
from service.compiler.kernels.vector.portable import PortableIsa


@dataclass(frozen=True)
class Rvv(PortableIsa):
    """The portable vectors, and instructions where one does what LLVM makes of several operations."""

    def round_even(self, value: Expr) -> Expr:
        """`vfcvt.x.f.v`, which rounds as the process does: halves to even."""
        least = splat(tirx.const(-(2.0**31), "float32"), self.lanes)
        return intrinsic(f"int32x{self.lanes}", "llvm.lrint", tirx.max(value, least))


ISAS: dict[str, Rvv] = {isa.name: isa for isa in (Rvv("riscv64+v"),)}
