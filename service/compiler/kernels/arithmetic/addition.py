"""Formulas that add a residual to the result of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import tirx

from service.compiler.kernels.program import Expr, bits
from service.compiler.kernels.vector.lanes import Lanes


class Addition(Protocol):
    """Adds a residual to the result of a layer, with the same rounding steps as the reference."""

    @property
    def parameters(self) -> tuple[int, ...]:
        """The int32 values that the generated code reads."""

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        """Returns the sum minus the output's zero point.

        Args:
            value: the clamped result of the layer, minus its zero point.
            residual: the residual as stored.
        """


@dataclass(frozen=True)
class SharedShiftSum:
    """`SharedShiftAdd`: each operand is multiplied by a 21-bit integer, and the sum is shifted once."""

    multiplier: int
    residual_multiplier: int
    bias: int
    shift: int

    @property
    def parameters(self) -> tuple[int, ...]:
        return self.multiplier, self.residual_multiplier, self.bias, self.shift

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        multiplier, residual_multiplier, bias, shift = parameters
        return lanes.keep((value * multiplier + residual * residual_multiplier + bias) >> shift)


@dataclass(frozen=True)
class ScaledAddition:
    """`ScaledSum`: multiplies the first operand by its factor, adds the second one by a fused multiply-add, and rounds
    to even.

    The factors are float32, and so small that the sum always fits int32.
    """

    factor: float
    residual_factor: float
    residual_zero_point: int
    residual_is_first: bool

    @property
    def parameters(self) -> tuple[int, ...]:
        factors = np.array([self.factor, self.residual_factor], np.float32).view(np.int32)
        return (*factors.tolist(), self.residual_zero_point)

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        floating, (own, of_residual, zero_point) = f"float32x{lanes.isa.lanes}", parameters
        first, second = (value, own), (residual - zero_point, of_residual)
        if self.residual_is_first:
            first, second = second, first
        (a, a_factor), (b, b_factor) = (
            (tirx.Cast(floating, operand), bits(floating, factor)) for operand, factor in (first, second)
        )
        total = lanes.fused(b, b_factor, lanes.keep(a * a_factor, "float32"))
        return lanes.keep(lanes.isa.round_even(total))


@dataclass(frozen=True)
class FixedPointSum:
    """`FixedPointAdd`: adds both operands in a common unit, 2**-20 times twice the larger scale.

    Multipliers are (significand, shift). Operands minus their zero points are below 2**9. After the shift by 20 bits
    and the scaling, the operands and their sum are below 2**30.

    Attributes:
        subtracts: true to subtract the residual instead (`FixedPointSub`).
    """

    multiplier: tuple[int, int]
    residual_multiplier: tuple[int, int]
    residual_zero_point: int
    out_multiplier: tuple[int, int]
    subtracts: bool = False

    LEFT_SHIFT = 20
    _HALF = (1 << 30, 0)  # the multiplier 1/2: the operand is shifted by one bit less instead of multiplied

    @property
    def parameters(self) -> tuple[int, ...]:
        pairs = (self.multiplier, self.residual_multiplier, self.out_multiplier)
        return (self.residual_zero_point, *(part for significand, shift in pairs for part in (significand, -shift)))

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        zero_point, *rest = parameters
        terms = [
            self._scaled(lanes, operand, multiplier, rest[2 * index], rest[2 * index + 1])
            for index, (operand, multiplier) in enumerate(
                ((value, self.multiplier), (residual - zero_point, self.residual_multiplier))
            )
        ]
        total = lanes.keep(terms[0] - terms[1] if self.subtracts else terms[0] + terms[1])
        return self._round_twice(lanes, total, self.out_multiplier, rest[4], rest[5])

    def _scaled(self, lanes: Lanes, operand: Expr, multiplier: tuple[int, int], significand: Expr, right: Expr) -> Expr:
        if multiplier == self._HALF:
            return operand << lanes.const(self.LEFT_SHIFT - 1)
        return self._round_twice(
            lanes, lanes.keep(operand << lanes.const(self.LEFT_SHIFT)), multiplier, significand, right
        )

    @staticmethod
    def _round_twice(lanes: Lanes, x: Expr, multiplier: tuple[int, int], significand: Expr, right: Expr) -> Expr:
        shift = multiplier[1]
        if shift < 0:
            return lanes.round_twice(x, significand, right)
        if shift > 0:
            x = lanes.keep(x << (lanes.const(0) - right))
        return lanes.high_mul(x, significand)
