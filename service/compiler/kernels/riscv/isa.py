"""RISC-V's vector instructions, as `vector.isa.Isa`.

LLVM generates these instructions from the portable vectors of 128 bits, which every CPU with V 1.0 has (Zvl128b). If a
CPU's registers are longer, only a part of them is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, intrinsic, splat
from service.compiler.kernels.vector.portable import PortableIsa


@dataclass(frozen=True)
class Rvv(PortableIsa):
    """The portable vectors, with single RISC-V instructions in place of some sequences of portable operations."""

    def round_even(self, value: Expr) -> Expr:
        """Uses `vfcvt.x.f.v` in the process' rounding mode, which rounds halves to even."""
        least = splat(tirx.const(-(2.0**31), "float32"), self.lanes)
        return intrinsic(f"int32x{self.lanes}", "llvm.lrint", tirx.max(value, least))


ISAS: dict[str, Rvv] = {isa.name: isa for isa in (Rvv("riscv64+v"),)}
