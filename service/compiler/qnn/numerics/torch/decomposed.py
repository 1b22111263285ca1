"""PyTorch's exported programs as PyTorch itself runs them: float32 operators between conversions
(torch/ao/quantization/fx/_decomposed.py), `(q - z) * s` and `round(x * (1 / s)) + z`.

Elementwise operators use the same arithmetic as PyTorch, step by step, and give equal results. Sums of products are
integer sums here, but PyTorch sums float32 products in an order that its library chooses. The results are equal unless
a real value is so close to the middle between two steps that the rounding errors of PyTorch's sum decide which step it
becomes.
"""

from __future__ import annotations

import numpy as np
from tvm import relax, tirx

from service.compiler.qnn.numerics.elementwise import binary_types
from service.compiler.qnn.numerics.formula import Scalar, pointwise
from service.compiler.qnn.numerics.onnxruntime.mlas import WindowAverage
from service.compiler.qnn.numerics.torch.aten import FloatAdd, reciprocal, rounded, stored
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


class RealMul:
    """Returns the product of two dequantized values."""

    summary = "z + round_even(float(s_a * (a - za)) * float(s_b * (b - zb)) * float(1 / s)), in float32"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        lhs_type, rhs_type, out_type = binary_types(operation)

        def real(values: Array, quantized: QuantizedType) -> Array:
            return (values.astype(np.int64) - quantized.zero_point).astype(np.float32) * np.float32(quantized.scale)

        return stored(real(a, lhs_type) * real(b, rhs_type) * reciprocal(out_type), out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        lhs_type, rhs_type, out_type = binary_types(operation)

        def real(value: Scalar, quantized: QuantizedType) -> Scalar:
            centred = (value.astype("int32") - quantized.zero_point).astype("float32")
            return centred * tirx.const(float(np.float32(quantized.scale)), "float32")

        def compute(a: Scalar, b: Scalar) -> Scalar:
            product = real(a, lhs_type) * real(b, rhs_type)
            return rounded(product * tirx.const(float(reciprocal(out_type)), "float32"), out_type)

        return pointwise(builder, "mul", compute, [a, b])


class RealAverage(WindowAverage):
    """`avg_pool2d` of dequantized values (native/cpu/AvgPoolKernel.cpp): added row by row, and then divided by their
    number.
    """

    summary = "z + round_even(float(sum(s_in * (q - z_in)) / n) * float(1 / s)), the sum in order"

    def stored(self, mean: Array, out_type: QuantizedType) -> Array:
        return stored(mean * reciprocal(out_type), out_type)

    def lowered(self, mean: Scalar, out_type: QuantizedType) -> Scalar:
        return rounded(mean * tirx.const(float(reciprocal(out_type)), "float32"), out_type)
