"""The instructions that multiply and accumulate, as data; the peak loops repeat them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tvm import tirx

Expr = Any


@dataclass(frozen=True)
class Instruction:
    """One way to add products to a register: a vector, or (`tmm`) a tile of 16 by 16, whose products have depth 64.

    Attributes:
        name: the mnemonic and the register, as in `vpdpbusd zmm`.
        operand: element type of the multiplied registers.
        intrinsic: LLVM's name of the instruction. (LLVM 22 requires bytes, not dwords, as vpdpbusd's operands.) For
            bfloat16, for which TVM has no LLVM type, the name of a function in `FUNCTIONS`.
        features: sets of flags; /proc/cpuinfo must contain all flags of one set.
        macs: multiply-accumulates of one instruction.
        adds: true if it adds to the accumulator itself. It is false for vpmaddwd, which needs a separate vpaddd.
        cpu: LLVM's name of the CPU to compile for, if LLVM would choose other instructions for this machine's CPU.
    """

    name: str
    operand: str
    intrinsic: str
    features: tuple[frozenset[str], ...]
    macs: int
    adds: bool = True
    cpu: str = ""

    @property
    def mnemonic(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def register(self) -> str:
        return self.name.partition(" ")[2]

    @property
    def accumulator(self) -> str:
        """Returns the element type of the accumulator register."""
        return "float32" if "float" in self.operand else "int32"

    @property
    def stored(self) -> str:
        """Returns a type of the operands' size that NumPy and TVM support."""
        return "uint16" if self.operand == "bfloat16" else self.operand

    @property
    def lanes(self) -> int:
        """Returns the number of 32-bit lanes of the accumulator."""
        return {"tmm": 256, "zmm": 16, "ymm": 8}[self.register]

    @property
    def operand_lanes(self) -> int:
        return self.lanes * {"int8": 4, "int16": 2, "bfloat16": 2, "float32": 1}[self.operand]

    def apply(self, total: Expr, first: Expr, second: Expr) -> Expr:
        """Returns `total` plus the products of `first` and `second`."""
        dtype = f"{self.accumulator}x{self.lanes}"
        if not self.adds:
            return total + tirx.call_llvm_pure_intrin(dtype, self.intrinsic, first, second)
        if self.operand == "bfloat16":
            return tirx.call_pure_extern(dtype, self.intrinsic, total, first, second)
        operands = (first, second, total) if self.operand == "float32" else (total, first, second)
        return tirx.call_llvm_pure_intrin(dtype, self.intrinsic, *operands)


_VNNI = (frozenset({"avx512_vnni", "avx512vl"}),)
_VNNI_YMM = (*_VNNI, frozenset({"avx_vnni"}))
_AVX512 = (frozenset({"avx512f", "avx512bw", "avx512vl"}),)
_AVX2 = (frozenset({"avx2", "fma"}),)
_BFLOAT16 = (frozenset({"avx512_bf16", "avx512vl"}),)
_AMX = (frozenset({"amx_tile", "amx_int8"}),)
# Functions as LLVM's own text.
FUNCTIONS = {
    "add_pairs": """
target triple = "x86_64-unknown-linux-gnu"
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define private <16 x float> @add_pairs(<16 x float> %total, <32 x i16> %first, <32 x i16> %second) alwaysinline {
  %a = bitcast <32 x i16> %first to <32 x bfloat>
  %b = bitcast <32 x i16> %second to <32 x bfloat>
  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %total, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %r
}
"""
}
INSTRUCTIONS = (
    Instruction("tdpbusd tmm", "int8", "llvm.x86.tdpbusd", _AMX, 16 * 16 * 64),
    Instruction("vpdpbusd zmm", "int8", "llvm.x86.avx512.vpdpbusd.512", _VNNI, 64),
    Instruction("vpdpbusd ymm", "int8", "llvm.x86.avx512.vpdpbusd.256", _VNNI_YMM, 32),
    Instruction("vpdpwssd zmm", "int16", "llvm.x86.avx512.vpdpwssd.512", _VNNI, 32),
    Instruction("vpmaddwd zmm", "int16", "llvm.x86.avx512.pmaddw.d.512", _AVX512, 32, False, "x86-64-v4"),
    Instruction("vpmaddwd ymm", "int16", "llvm.x86.avx2.pmadd.wd", _AVX2, 16, False, "x86-64-v3"),
    Instruction("vdpbf16ps zmm", "bfloat16", "add_pairs", _BFLOAT16, 32),
    Instruction("vfmadd zmm", "float32", "llvm.fma", _AVX512, 16),
    Instruction("vfmadd ymm", "float32", "llvm.fma", _AVX2, 8),
)


def available(features: Collection[str]) -> list[Instruction]:
    return [it for it in INSTRUCTIONS if any(needed <= set(features) for needed in it.features)]


def named(name: str) -> Instruction:
    """Returns an instruction. Raises KeyError if none has that name."""
    return {instruction.name: instruction for instruction in INSTRUCTIONS}[name]
