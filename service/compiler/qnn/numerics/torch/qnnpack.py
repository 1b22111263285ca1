"""QNNPACK, as part of PyTorch, on x86-64: unsigned bytes, and integer biases.

Sources are ATen's native/quantized/cpu (qconv.cpp, qlinear.cpp, BinaryOps.cpp, AveragePool2d.cpp, ReduceOps.cpp) and
its qnnpack/src (qnnpack/requantization.h, q8gemm, q8dwconv, q8vadd, q8avgpool, q8gavgpool; the SSE2 kernels).
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.elementwise import binary_types
from service.compiler.qnn.numerics.formula import ChannelConstant, Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.pooling import reduction, windows
from service.compiler.qnn.numerics.scaling.requantize import bias_of
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.numerics.torch.aten import EvenAverage, FloatAdd, reciprocal, rounded, stored
from service.compiler.qnn.numerics.torch.aten_unary import EvenFunction, hard_swish
from service.compiler.qnn.operation import Operation
from service.core.errors import UnsupportedOperator
from service.core.models.arrays import Array

_SMALLEST_RATIO, _LARGEST_RATIO = 2.0**-14, 2.0**8  # the limits for the ratio of an operand's scale to that of the sum


class IntegerBias:
    """Convolutions and linear layers: the bias is rounded to steps of s_x * s_w and added to the accumulator."""

    adds_bias = True
    summary = "z + round_even(float(acc + round_even(bias / (s_x * s_w))) * float(float(s_x * s_w) * float(1 / s)))"

    def evaluate(self, operation: Operation, x: Array, bias: Array | None = None) -> Array:
        scales, addends = self.parameters(operation, bias)
        return stored((x.astype(np.int64) + addends).astype(np.float32) * scales, operation.per_tensor("out_type"))

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, bias: relax.Expr | None = None
    ) -> relax.Expr:
        out_type, axis = operation.per_tensor("out_type"), len(x.ty.shape) - 1
        scales, addends = self.parameters(operation, None if bias is None else bias_of(operation, bias))

        def scale(acc: Scalar, scale: Scalar, addend: Scalar) -> Scalar:
            return rounded((acc + addend).astype("float32") * scale, out_type)

        return pointwise(builder, "requantize", scale, [x], [ChannelConstant(each, axis) for each in (scales, addends)])

    def parameters(self, operation: Operation, bias: Array | None) -> tuple[Array, Array]:
        """Returns float32 scales and int32 integers to add: `[C]` or `[1]` each."""
        _require_unsigned(operation, operation.per_tensor("out_type").storage)
        products = np.array(operation.quantized("in_type").scales).astype(np.float32)
        scales = products * reciprocal(operation.per_tensor("out_type"))
        if bias is None:
            return scales, np.zeros(1, np.int32)
        steps = np.rint(bias * (np.float32(1) / products))
        if not (np.abs(steps) < 2.0**31).all():
            raise UnsupportedOperator(f"{operation.name}: the bias exceeds 2**31 steps", op=operation.name)
        return scales, steps.astype(np.int32)


class SharedShiftSum:
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

    def lower(self, operation: Operation, builder: relax.BlockBuilder, a: relax.Expr, b: relax.Expr) -> relax.Expr:
        if list(a.ty.shape) != list(b.ty.shape):
            return FloatAdd().lower(operation, builder, a, b)
        lhs_type, rhs_type, out_type = binary_types(operation)
        lhs, rhs, shift = self.parameters(operation)

        def compute(a: Scalar, b: Scalar) -> Scalar:
            total = (a.astype("int32") - lhs_type.zero_point) * lhs + (b.astype("int32") - rhs_type.zero_point) * rhs
            below = (total < tirx.const(0, "int32")).astype("int32")
            return clamped(((total + (1 << (shift - 1)) - below) >> shift) + out_type.zero_point, out_type)

        return pointwise(builder, "add", compute, [a, b])

    def parameters(self, operation: Operation) -> tuple[int, int, int]:
        """Returns both multipliers, and the shift."""
        lhs_type, rhs_type, out_type = binary_types(operation)
        _require_unsigned(operation, out_type.storage)
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


class AdaptiveAverage:
    """q8avgpool and q8gavgpool, for windows without padding (`qnnpack_adaptive_avg_pool2d`)."""

    summary = "z + round_even((sum - count * z) * float(s / float(s * count)))"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type, (factor, count) = operation.per_tensor("out_type"), self.parameters(operation)
        total = sum(windows(operation, x.astype(np.int64), 0)) - count * operation.per_tensor("in_type").zero_point
        mean = np.rint(np.asarray(total).astype(np.float32) * factor).astype(np.int64)
        return store(mean + out_type.zero_point, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type, (factor, count) = operation.per_tensor("out_type"), self.parameters(operation)
        total = builder.emit_te(reduction(operation, te.sum, "int32"), x)
        centre = tirx.const(count * operation.per_tensor("in_type").zero_point, "int32")

        def mean(total: Scalar) -> Scalar:
            scaled = (total - centre).astype("float32") * tirx.const(float(factor), "float32")
            return clamped(tirx.nearbyint(scaled).astype("int32") + out_type.zero_point, out_type)

        return pointwise(builder, "average", mean, [total])

    @staticmethod
    def parameters(operation: Operation) -> tuple[np.float32, int]:
        """Returns the factor, and the number of elements of a window."""
        _require_unsigned(operation, operation.per_tensor("in_type").storage)
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
