"""AVX512-BF16: `vdpbf16ps`, which adds the products of two bfloat16 pairs to float32, and `vcvtneps2bf16`.

TVM has no LLVM type for bfloat16. So the product is a function in LLVM IR whose parameters are pairs in int32 lanes.
The function is inlined, and only the instruction remains. Source: Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, Program, bits, intrinsic

LANES = 16
_NAME = "octet_add_bfloat16_products"
_FUNCTION = f"""
target triple = "x86_64-unknown-linux-gnu"
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define private <16 x float> @{_NAME}(<16 x float> %totals, <16 x i32> %a, <16 x i32> %b) alwaysinline {{
  %x = bitcast <16 x i32> %a to <32 x bfloat>
  %y = bitcast <16 x i32> %b to <32 x bfloat>
  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %totals, <32 x bfloat> %x, <32 x bfloat> %y)
  ret <16 x float> %r
}}
"""


@dataclass(frozen=True)
class Avx512BFloat16:
    """Implements `vector.isa.BFloat16` with AVX512-BF16."""

    def words(self, program: Program, values: Expr) -> Expr:
        """Converts float32 to bfloat16. TVM lacks the type, so the result of the intrinsic is reinterpreted as
        uint16."""
        return bits(f"uint16x{LANES}", intrinsic(f"int16x{LANES}", "llvm.x86.avx512bf16.cvtneps2bf16.512", values))

    def add_products(self, program: Program, totals: Expr, operand: Expr, weights: Expr) -> Expr:
        program.import_llvm(_FUNCTION)
        return tirx.call_pure_extern(f"float32x{LANES}", _NAME, totals, operand, weights)
