"""Fixed-point arithmetic with NEON's instructions, which round like gemmlowp."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.program import Expr, Program, intrinsic, shuffle, splat

_LANES = 4
_DTYPE, _HALF, _WIDE = f"int32x{_LANES}", range(_LANES // 2), f"int64x{_LANES // 2}"


@dataclass(frozen=True)
class NeonFixedPoint:
    """Implements `vector.isa.FixedPoint` with NEON instructions."""

    def high_mul(self, program: Program, x: Expr, significand: Expr) -> Expr:
        """Uses `sqrdmulh`, which computes the equal value (2 * x * significand + 2**31) >> 32.

        The instruction saturates only if both factors are the smallest integer. A significand is positive.
        """
        return program.bind(intrinsic(_DTYPE, "llvm.aarch64.neon.sqrdmulh", x, significand), _DTYPE)

    def divide_by_pot(self, program: Program, x: Expr, exponent: Expr) -> Expr:
        """Uses `srshl`, which rounds halves up. This method subtracts 1 from negative numbers first, so that their
        halves round down.
        """
        x = program.bind(x, _DTYPE)
        nudged = x + (x >> splat(tirx.const(31, "int32"), _LANES))
        return intrinsic(_DTYPE, "llvm.aarch64.neon.srshl", nudged, splat(tirx.const(0, "int32"), _LANES) - exponent)

    def round_twice(self, program: Program, x: Expr, significand: Expr, exponent: Expr) -> Expr:
        return program.bind(self.divide_by_pot(program, self.high_mul(program, x, significand), exponent), _DTYPE)

    def scale_once(self, program: Program, x: Expr, significand: Expr, right: Expr, *, away: bool) -> Expr:
        x, left = program.bind(x, _DTYPE), program.bind(splat(tirx.const(0, "int32"), _LANES) - right, _DTYPE)
        halves = []
        for half in (_HALF, [lane + len(_HALF) for lane in _HALF]):
            factors = (shuffle(value, half) for value in (x, significand))
            product = intrinsic(_WIDE, "llvm.aarch64.neon.smull", *factors)
            if away:
                product = program.bind(product, _WIDE)
                product = product + (product >> splat(tirx.const(63, "int64"), len(_HALF)))
            count = tirx.Cast(_WIDE, shuffle(left, half))
            rounded = intrinsic(_WIDE, "llvm.aarch64.neon.srshl", product, count)
            halves.append(tirx.Cast(f"int32x{len(_HALF)}", rounded))
        joined = tirx.Shuffle(halves, [tirx.const(lane, "int32") for lane in range(_LANES)])
        return program.bind(joined, _DTYPE)
