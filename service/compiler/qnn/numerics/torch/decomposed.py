"""PyTorch's exported programs as PyTorch itself runs them: float32 operators between conversions
(torch/ao/quantization/fx/_decomposed.py), `(q - z) * s` and `round(x * (1 / s)) + z`.

Elementwise operators use the same arithmetic as PyTorch, step by step, and give equal results. Sums of products are
integer sums here, but PyTorch sums float32 products in an order that its library chooses. The results are equal unless
a real value is so close to the middle between two steps that the rounding errors of PyTorch's sum decide which step it
becomes.
"""

from __future__ import annotations

import math

import numpy as np

from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.ops import LARGEST
from service.compiler.qnn.expressions.pairs import LARGEST_PRODUCT, Arithmetic, RealProduct
from service.compiler.qnn.numerics.elementwise import binary_types
from service.compiler.qnn.numerics.expressed import Computes
from service.compiler.qnn.numerics.onnxruntime.mlas import WindowAverage
from service.compiler.qnn.numerics.torch.aten import FloatAdd, reciprocal, stored
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array


class RealAdd(FloatAdd):
    """Dequantizes two operands, each by (q - zero_point) * scale, and adds the real values."""

    summary = "z + round_even((s_a * (a - za) + s_b * (b - zb)) * float(1 / s)), in float32"

    @staticmethod
    def centre(quantized: QuantizedType) -> int:
        return quantized.zero_point

    @staticmethod
    def parameters(quantized: QuantizedType) -> tuple[float, float]:
        return float(np.float32(quantized.scale)), 0.0


class RealMul(Computes):
    """Returns the product of two dequantized values."""

    summary = "z + round_even(float(s_a * (a - za)) * float(s_b * (b - zb)) * float(1 / s)), in float32"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)

        def real(values: Array, quantized: QuantizedType) -> Array:
            return (values.astype(np.int64) - quantized.zero_point).astype(np.float32) * np.float32(quantized.scale)

        return stored(real(a, lhs_type) * real(b, rhs_type) * reciprocal(out_type), out_type)

    def arithmetic(self, operation: Operation, facts: Facts) -> Arithmetic:
        lhs_type, rhs_type, out_type = binary_types(operation)
        factors = lhs_type.scale, rhs_type.scale, float(reciprocal(out_type))
        zero_points = facts.zero_point(lhs_type), facts.zero_point(rhs_type)
        return RealProduct(factors, zero_points, limited=not LARGEST_PRODUCT * math.prod(factors) < LARGEST)


class RealAverage(WindowAverage):
    """`avg_pool2d` of dequantized values (native/cpu/AvgPoolKernel.cpp): added row by row, and then divided by their
    number.
    """

    summary = "z + round_even(float(sum(s_in * (q - z_in)) / n) * float(1 / s)), the sum in order"

    def multiplier(self, out_type: QuantizedType) -> float | None:
        return float(reciprocal(out_type))

    def stored(self, mean: Array, out_type: QuantizedType) -> Array:
        return stored(mean * reciprocal(out_type), out_type)
