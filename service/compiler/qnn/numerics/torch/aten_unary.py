"""PyTorch's functions of one quantized value: float32 between `dequantize_val` and `quantize_val`, as a table.

The sources are qsigmoid.cpp, qtanh.cpp, qhardswish.cpp, qelu.cpp and qrelu.cpp of ATen's native/quantized/cpu, and
their kernels in kernels/QuantizedOpKernels.cpp. PyTorch's vector library approximates some of these functions. Here
they are computed in float64 and rounded correctly; PyTorch's 8-bit results were equal in all comparisons.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from service.compiler.qnn.numerics.functions.unary import Tabulated
from service.compiler.qnn.numerics.scaling.fused import fma
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.numerics.torch.aten import FloatAdd, reciprocal
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_FAR = 2.0**31  # beyond the range of every storage type


class EvenFunction(Tabulated):
    """A float32 function of the real value. Its result is rounded to the nearest integer, halves to even."""

    def __init__(self, name: str, function: Callable[[Operation, Array], Array], *, fused: bool = False) -> None:
        """`function` maps float32 to float32. If `fused` is true, a fused multiply-add dequantizes the values."""
        self.function, self.fused = function, fused
        real = "fma(s_in, q, -z_in * s_in)" if fused else "s_in * (q - z_in)"
        self.summary = f"z + round_even({name}({real}) * float(1 / s)), in float32"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        if self.fused:
            scale, offset = (np.array(each, np.float32) for each in FloatAdd.parameters(in_type))
            real = fma(x, scale, offset)
        else:
            real = (x - in_type.zero_point).astype(np.float32) * np.float32(in_type.scale)
        scaled = np.clip(self.function(operation, real) * reciprocal(out_type), -_FAR, _FAR)
        return np.asarray(round_even(scaled).astype(np.int64) + out_type.zero_point)


def _elu(_operation: Operation, x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0).astype(np.float64)).astype(np.float32), x)


def hard_swish(_operation: Operation, x: Array) -> Array:
    """Returns x * relu6(x + 3) / 6, each step in float32."""
    inside = np.minimum(np.maximum(x + np.float32(3), np.float32(0)), np.float32(6))
    return np.asarray(x * inside / np.float32(6))


def _hard_sigmoid(_operation: Operation, x: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(x + np.float32(3), np.float32(0)), np.float32(6)) / np.float32(6))


def _leaky_relu(operation: Operation, x: Array) -> Array:
    return np.where(x > 0, x, x * np.float32(operation.floating("alpha")))


def _logistic(_operation: Operation, x: Array) -> Array:
    one = np.float32(1)
    with np.errstate(over="ignore"):
        return np.asarray(one / (one + np.exp(-x.astype(np.float64)).astype(np.float32)))


def _silu(_operation: Operation, x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x / (np.float32(1) + np.exp(-x.astype(np.float64)).astype(np.float32)))


def _tanh(_operation: Operation, x: Array) -> Array:
    return np.asarray(np.tanh(x.astype(np.float64)).astype(np.float32))


ELU = EvenFunction("elu", _elu)
HARD_SIGMOID = EvenFunction("hard_sigmoid", _hard_sigmoid)
HARD_SWISH = EvenFunction("hard_swish", hard_swish)
LEAKY_RELU = EvenFunction("leaky_relu", _leaky_relu)
LOGISTIC = EvenFunction("logistic", _logistic)
REAL_TANH = EvenFunction("tanh", _tanh)
SILU = EvenFunction("silu", _silu)
TANH = EvenFunction("tanh", _tanh, fused=True)
