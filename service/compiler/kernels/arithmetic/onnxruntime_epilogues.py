"""ONNX Runtime's float32 addition and multiplication on vectors: `mlas.Add` and `mlas.Mul`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.requantization import Requantization
from service.compiler.kernels.program import Expr, bits
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array


@dataclass(frozen=True)
class FusedSum:
    """`mlas.Add`: adds both of the model's operands by fused multiply-adds, and rounds to even.

    Attributes:
        ratios: the ratios s_in / s of the layer's value and of the residual.
        fixed: the constant term, which contains the zero points.
        zero_points: the zero points of the value and of the output, as the model stores them.
        bias: the number that kernels add to a stored value (`layout.BIAS`).
        residual_last: true if the residual is the first operand. MLAS adds the first operand last.
    """

    ratios: tuple[float, float]
    fixed: float
    zero_points: tuple[int, int]
    bias: int
    residual_last: bool

    @property
    def parameters(self) -> tuple[int, ...]:
        floats = np.array([*self.ratios, self.fixed], np.float32).view(np.int32)
        return (*self.zero_points, *(int(value) for value in floats))

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        zero_point, out_zero_point, *floats = parameters
        dtype = f"float32x{lanes.isa.lanes}"
        ratio, of_residual, fixed = (bits(dtype, number) for number in floats)
        stored = residual - lanes.const(self.bias) if self.bias else residual
        terms = [
            (tirx.Cast(dtype, lanes.keep(value + zero_point)), ratio),
            (tirx.Cast(dtype, lanes.keep(stored)), of_residual),
        ]
        total = fixed
        for operand, factor in terms if self.residual_last else reversed(terms):
            total = lanes.keep(lanes.multiply_add(operand, factor, total), "float32")
        return lanes.keep(lanes.isa.round_even(total) - out_zero_point)


@dataclass(frozen=True)
class ShiftedProduct(Requantization):
    """`mlas.Mul`: scales the product, adds the zero point in float32, and rounds to even.

    Attributes:
        zero_point: the zero point of the output, as the model stores it.
    """

    scale: float
    zero_point: int

    @property
    def arrays(self) -> tuple[Array, ...]:
        return np.array([self.scale], np.float32), np.array([self.zero_point], np.int32)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        scale, zero_point = channels
        dtype = f"float32x{lanes.isa.lanes}"
        product = lanes.keep(lanes.rounded(tirx.Cast(dtype, accumulator) * scale), "float32")
        moved = lanes.keep(product + tirx.Cast(dtype, zero_point), "float32")
        return lanes.keep(lanes.isa.round_even(moved) - zero_point)
