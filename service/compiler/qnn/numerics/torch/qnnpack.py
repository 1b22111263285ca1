"""QNNPACK, as part of PyTorch, on x86-64: unsigned bytes, and integer biases.

Sources are ATen's native/quantized/cpu (qconv.cpp, qlinear.cpp, BinaryOps.cpp, AveragePool2d.cpp, ReduceOps.cpp) and
its qnnpack/src (qnnpack/requantization.h, q8gemm, q8dwconv, q8vadd, q8avgpool, q8gavgpool; the SSE2 kernels).
"""

from __future__ import annotations

import math

import numpy as np

from service.compiler.locating import Declined
from service.compiler.qnn.expressions.averages import Average, ScaledMean
from service.compiler.qnn.expressions.facts import Facts
from service.compiler.qnn.expressions.requantization import BiasedScale, FloatScale, Requantization
from service.compiler.qnn.expressions.sums import Addition, AwaySum
from service.compiler.qnn.numerics.elementwise import binary_types
from service.compiler.qnn.numerics.expressed import Adds, Requantizes
from service.compiler.qnn.numerics.formula import store
from service.compiler.qnn.numerics.pooling import AveragesWindows, windows
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.numerics.torch.aten import EvenAverage, FloatAdd, reciprocal, stored
from service.compiler.qnn.numerics.torch.aten_unary import EvenFunction, hard_swish
from service.compiler.qnn.operation import Operation
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array

_SMALLEST_RATIO, _LARGEST_RATIO = 2.0**-14, 2.0**8  # the limits for the ratio of an operand's scale to that of the sum


class IntegerBias(Requantizes):
    """Convolutions and linear layers: the bias is rounded to steps of s_x * s_w and added to the accumulator."""

    adds_bias = True
    summary = "z + round_even(float(acc + round_even(bias / (s_x * s_w))) * float(float(s_x * s_w) * float(1 / s)))"

    def evaluate(self, operation: Operation, x: Array, bias: Array | None = None) -> Array:
        scales, addends = self.parameters(operation, bias)
        return stored((x.astype(np.int64) + addends).astype(np.float32) * scales, operation.per_tensor("out_type"))

    def requantization(self, operation: Operation, facts: Facts, bias: Array | None) -> Requantization:
        scales, addends = self.parameters(operation, bias)
        if facts.known and (facts.magnitudes + np.abs(addends.astype(np.int64)) >= 1 << 31).any():
            raise Declined("a sum with its bias may exceed 32 bits")
        bounded = facts.fits(scales, addends * scales)
        return BiasedScale(scales, addends, None, bounded) if addends.any() else FloatScale(scales, bounded)

    def parameters(self, operation: Operation, bias: Array | None) -> tuple[Array, Array]:
        """Returns float32 scales and int32 integers to add: `[C]` or `[1]` each."""
        _require_unsigned(operation, operation.per_tensor("out_type").dtype)
        products = np.array(operation.quantized("in_type").scales).astype(np.float32)
        scales = products * reciprocal(operation.per_tensor("out_type"))
        if bias is None:
            return scales, np.zeros(1, np.int32)
        steps = np.rint(bias * (np.float32(1) / products))
        if not (np.abs(steps) < 2.0**31).all():
            raise UnsupportedOperator(f"{operation.name}: the bias exceeds 2**31 steps", op=operation.name)
        return scales, steps.astype(np.int32)


class SharedShiftSum(Adds):
    """q8vadd: two 22-bit multipliers with one shift, rounded once, halves away from zero. Both operands have the same
    shape.
    """

    summary = "z + round_away(((a - za) * ma + (b - zb) * mb) / 2**shift); as ATen's where one is repeated"

    def evaluate(self, operation: Operation, a: Array, b: Array) -> Array:
        if a.shape != b.shape:
            return FloatAdd().evaluate(operation, a, b)
        lhs_type, rhs_type, out_type = binary_types(operation)
        lhs, rhs, shift = self.parameters(operation)
        total = (a.astype(np.int64) - lhs_type.zero_point) * lhs + (b.astype(np.int64) - rhs_type.zero_point) * rhs
        half = np.int64(1) << (shift - 1)
        return store(((total + half - (total < 0)) >> shift) + out_type.zero_point, out_type)

    def addition(self, operation: Operation, facts: Facts, residual_is_lhs: bool) -> Addition:
        if operation.tensor(0)[0] != operation.tensor(1)[0]:
            return FloatAdd().addition(operation, facts, residual_is_lhs)
        factor, of_residual, shift = self.parameters(operation)
        residual_type = operation.per_tensor("lhs_type" if residual_is_lhs else "rhs_type")
        if residual_is_lhs:
            factor, of_residual = of_residual, factor
        return AwaySum(factor, of_residual, -of_residual * facts.zero_point(residual_type), shift)

    def parameters(self, operation: Operation) -> tuple[int, int, int]:
        """Returns both multipliers, and the shift."""
        lhs_type, rhs_type, out_type = binary_types(operation)
        _require_unsigned(operation, out_type.dtype)
        ratios = [np.float32(each.scale) / np.float32(out_type.scale) for each in (lhs_type, rhs_type)]
        if not all(_SMALLEST_RATIO <= ratio < _LARGEST_RATIO for ratio in ratios):
            raise UnsupportedOperator(
                "qnn.add: QNNPACK refuses operands whose scale is under 2**-14 or over 2**8 times the sum's",
                op="qnn.add",
            )
        shift = 21 - (math.frexp(max(ratios))[1] - 1)
        lhs, rhs = (round(math.ldexp(float(ratio), shift)) for ratio in ratios)  # round() is half to even
        return lhs, rhs, shift


class WindowAverage(EvenAverage):
    """q8avgpool: all channels are computed in the same way. Padding counts; a model's separate padding operator has
    become part of the image.
    """

    summary = "z + round_even((sum - count * z) * float(1 / count))"

    @staticmethod
    def centres(operation: Operation, channels: int) -> Array:
        top, left, *_ = operation.ints("padding", 4, 0)
        if top or left:
            raise UnsupportedOperator(
                "qnn.avg_pool2d: QNNPACK counts the padding, but the model does not count it", op=operation.name
            )
        return np.full(channels, operation.per_tensor("in_type").zero_point, np.int32)


class AdaptiveAverage(AveragesWindows):
    """q8avgpool and q8gavgpool, for windows without padding (`qnnpack_adaptive_avg_pool2d`)."""

    summary = "z + round_even((sum - count * z) * float(s / float(s * count)))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type, (factor, count) = operation.per_tensor("out_type"), self.parameters(operation)
        total = sum(windows(operation, x.astype(np.int64), 0)) - count * operation.per_tensor("in_type").zero_point
        mean = np.rint(np.asarray(total).astype(np.float32) * factor).astype(np.int64)
        return store(mean + out_type.zero_point, out_type)

    def average(self, operation: Operation, facts: Facts, count: int) -> Average:
        factor, _ = self.parameters(operation)
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        return ScaledMean(float(factor), count * facts.zero_point(in_type), facts.zero_point(out_type))

    @staticmethod
    def parameters(operation: Operation) -> tuple[np.float32, int]:
        """Returns the factor, and the number of elements of a window."""
        _require_unsigned(operation, operation.per_tensor("in_type").dtype)
        rows, columns = operation.ints("pool_size", 2, 1)
        scale = np.float32(operation.per_tensor("in_type").scale)
        return np.float32(scale / (scale * np.float32(rows * columns))), rows * columns


class ZeroPointFirst(EvenFunction):
    """A table, for which the zero point is added before the rounding (qnnpack/src/hardswish.c)."""

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        real = (x - in_type.zero_point).astype(np.float32) * np.float32(in_type.scale)
        scaled = self.function(operation, real) * reciprocal(out_type) + np.float32(out_type.zero_point)
        return np.asarray(round_even(np.clip(scaled, out_type.min, out_type.max)).astype(np.int64))


HARD_SWISH = ZeroPointFirst("hard_swish", hard_swish)
HARD_SWISH.summary = "round_even(hard_swish(s_in * (q - z_in)) * float(1 / s) + z), in float32"


def _require_unsigned(operation: Operation, storage: str) -> None:
    if storage != "uint8":
        raise UnsupportedOperator(
            f"{operation.name} reads or writes {storage}, but the engine qnnpack supports uint8 only",
            op=operation.name,
            hint="use fbgemm",
        )
