"""PyTorch's epilogues. These epilogues convert accumulators to float32 and round like PyTorch's engines
(`qnn/numerics/torch/aten`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from service.compiler.kernels.arithmetic.requantization import LARGEST, Requantization
from service.compiler.kernels.program import Expr, bits
from service.compiler.kernels.vector.lanes import Lanes
from service.core.models.arrays import Array


@dataclass(frozen=True)
class BiasedScale(Requantization):
    """`FbgemmRequantize`: adds a bias in float32, multiplies by a scale, and rounds to even.

    Attributes:
        addends, factors: the bias is `addends`, or `addends * factors`, which a fused multiply-add computes and adds.
        bounded: true if the product always fits int32.
    """

    scales: Array
    addends: Array
    factors: Array | None
    bounded: bool

    @property
    def arrays(self) -> tuple[Array, ...]:
        given = (self.scales, self.addends) if self.factors is None else (self.scales, self.addends, self.factors)
        return tuple(array.astype(np.float32) for array in given)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        scale, addend, *factor = channels
        real = tirx.Cast(f"float32x{lanes.isa.lanes}", accumulator)
        # This sum needs no fence, because LLVM cannot contract a sum and a later multiplication.
        real = lanes.fused(addend, factor[0], real) if factor else lanes.keep(real + addend, "float32")
        product = real * scale
        if not self.bounded:
            product = tirx.min(product, lanes.const(LARGEST, "float32"))
        return lanes.keep(lanes.isa.round_even(product))


@dataclass(frozen=True)
class DequantizedScale(Requantization):
    """`OneDnnRequantize`: computes in float32, adds the zero point, and rounds to an integer at the end.

    Each product must be rounded before something is added to it. So the sum is computed as fma(product, 1, addend). The
    factor 1 is a parameter of the kernel, so that LLVM cannot simplify the fma.

    Attributes:
        values: s_x, s_w, bias, 1 / s, zero point and 1. Each is an array with a value for every channel.
    """

    values: tuple[Array, ...]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(array.astype(np.float32) for array in self.values)

    def apply(self, lanes: Lanes, accumulator: Expr, channels: tuple[Expr, ...]) -> Expr:
        in_scale, weight_scale, bias, factor, zero_point, one = channels
        product = tirx.Cast(f"float32x{lanes.isa.lanes}", accumulator) * in_scale * weight_scale
        scaled = lanes.keep(lanes.fused(product, one, bias) * factor, "float32")
        near = tirx.max(tirx.min(scaled, lanes.const(LARGEST, "float32")), lanes.const(-LARGEST, "float32"))
        rounded = lanes.isa.round_even(lanes.fused(near, one, zero_point))
        return lanes.keep(rounded - lanes.isa.round_even(zero_point))


@dataclass(frozen=True)
class FloatSum:
    """`FloatAdd`: dequantizes both operands by fused multiply-adds, adds them, multiplies by 1 / s, and rounds to even.

    Attributes:
        zero_point: the zero point of the layer's result.
        residual_bias: the number that kernels add to a residual to store it (`layout.BIAS`).
        terms: the scale and offset of the layer's result, and those of the residual.
        factor: 1 / s.
    """

    zero_point: int
    residual_bias: int
    terms: tuple[float, float, float, float]
    factor: float

    @property
    def parameters(self) -> tuple[int, ...]:
        numbers = np.array([*self.terms, self.factor], np.float32).view(np.int32)
        return self.zero_point, self.residual_bias, *(int(number) for number in numbers)

    def apply(self, lanes: Lanes, value: Expr, residual: Expr, parameters: tuple[Expr, ...]) -> Expr:
        dtype = f"float32x{lanes.isa.lanes}"
        zero_point, residual_bias, *numbers = parameters
        scale, offset, residual_scale, residual_offset, factor = (bits(dtype, number) for number in numbers)
        total = lanes.fused(tirx.Cast(dtype, value + zero_point), scale, offset) + lanes.fused(
            tirx.Cast(dtype, residual - residual_bias), residual_scale, residual_offset
        )
        return lanes.keep(lanes.isa.round_even(lanes.keep(total, "float32") * factor))
