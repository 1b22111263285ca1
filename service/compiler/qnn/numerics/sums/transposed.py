"""Transposed convolution, computed as an ordinary convolution that gives the same accumulators.

Let y be an output row plus the padding at the top. Its value is sum(x[i] * w[y - i * s]) over the input rows i. For y =
q * s + r, only the kernel rows m * s + r contribute: sum(x[q - m] * w[m * s + r]) over m. This is a convolution of
stride 1 by every s-th kernel row, in reverse order. The same holds for columns. All s_h * s_w phases r read the same
window of the input, so they are the filters of one convolution, whose channels are then moved to rows and columns.

The sums contain the same integers as those of the transposed convolution. If the window reaches beyond the image, it
reads padding, stored as the input's zero point. If a phase has fewer kernel rows or columns than another, the weights'
zero point fills the rest. Both are zero after their zero point is subtracted, and add nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from service.compiler.qnn import ops
from service.compiler.qnn.numerics.sums.accumulate import Conv2d, accumulated, centered, centered_operands
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Pair = tuple[int, int]


class Conv2dTranspose:
    """The formula of `qnn.conv2d_transpose`. TFLite: TransposeConv (reference/transpose_conv.h,
    integer_ops/transpose_conv.h).
    """

    summary = Conv2d.summary

    def evaluate(self, operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Scatters products as the reference kernels do: `[N, H, W, C]`, `[O, KH, KW, C]` -> `[N, OH, OW, O]`, in
        float64.
        """
        out_channels, kernel_h, kernel_w, _ = weight.shape
        stride_h, stride_w = operation.ints("strides", 2, 1)
        top, left, _, _ = operation.ints("padding", 4, 0)
        n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
        reals = centered(x, operation.per_tensor("in_type"))
        filters = centered(weight, operation.quantized("weight_type"))
        rows, columns = (x.shape[1] - 1) * stride_h + 1, (x.shape[2] - 1) * stride_w + 1
        full = np.zeros((n, max(rows + kernel_h, top + height), max(columns + kernel_w, left + width), out_channels))
        for i in range(kernel_h):
            for j in range(kernel_w):
                full[:, i : i + rows : stride_h, j : j + columns : stride_w] += reals @ filters[:, i, j].T
        return accumulated(operation, full[:, top : top + height, left : left + width], bias)

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        phases = Phases.of(operation)
        if value_of(weight) is None:
            operation, x, weight = centered_operands(operation, builder, x, weight)
        convolution = builder.normalize(phases.convolution(operation, x, weight, bias, builder))
        sums = Conv2d().lower(Operation(convolution), builder, *convolution.args)
        return phases.interleaved(builder.emit, builder.emit(sums))


@dataclass(frozen=True)
class Phases:
    """A transposed convolution in the form of an ordinary one, which has one filter for each phase of each original
    filter.

    Attributes:
        size: rows and columns of the output.
        strides: the number of phases for rows and columns.
        taps: rows and columns of the ordinary kernel.
        padding: the padding of the ordinary convolution.
        crop: the rows and columns of the ordinary result that precede the output.
    """

    size: Pair
    strides: Pair
    taps: Pair
    padding: tuple[int, int, int, int]
    crop: Pair

    @staticmethod
    def of(operation: Operation) -> Phases:
        stride_h, stride_w = operation.ints("strides", 2, 1)
        top, left, _, _ = operation.ints("padding", 4, 0)
        (_, height, width, _), _ = operation.tensor(0, 4)
        (_, kernel_h, kernel_w, _), _ = operation.tensor(1, 4)
        _, out_height, out_width, _ = (int(dim) for dim in operation.call.ty.shape)
        return Phases.around(
            (height, width), (kernel_h, kernel_w), (stride_h, stride_w), (top, left), (out_height, out_width)
        )

    @staticmethod
    def around(image: Pair, kernel: Pair, strides: Pair, before: Pair, size: Pair) -> Phases:
        """Returns the phases for an image of the given size, if `before` rows and columns are removed from the top and
        left of the full output.
        """
        (top, bottom), (left, right) = (
            _around(*axis) for axis in zip(image, kernel, strides, before, size, strict=True)
        )
        return Phases(
            size,
            strides,
            (-(-kernel[0] // strides[0]), -(-kernel[1] // strides[1])),
            (top, left, bottom, right),
            (before[0] % strides[0], before[1] % strides[1]),
        )

    def convolution(
        self,
        operation: Operation,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None,
        builder: relax.BlockBuilder,
    ) -> relax.Call:
        """Returns a call that computes the accumulators of `qnn.conv2d_transpose`, phase by phase: `[N, …, …, s_h * s_w
        * O]`.

        Args:
            weight: constant; or computed, with a zero point of 0.
        """
        weight_type = operation.quantized("weight_type")
        values, biases = value_of(weight), None if bias is None else value_of(bias)
        if biases is not None:
            bias = relax.const(np.tile(biases, self.count), str(biases.dtype))
        elif bias is not None:
            bias = builder.emit(relax.op.tile(bias, (self.count,)))
        kernel = (
            self._computed_kernel(builder, weight)
            if values is None
            else relax.const(self.kernel(values, weight_type.zero_points))
        )
        return ops.conv2d(
            x,
            kernel,
            bias,
            operation.per_tensor("in_type"),
            self.repeated(weight_type),
            padding=self.padding,
            accum_dtype=str(operation.attr("accum_dtype")),
        )

    def repeated(self, quantized: QuantizedType) -> QuantizedType:
        """Returns the type of the filters, or of their accumulators, repeated for the filters of every phase."""
        if quantized.axis is None:
            return quantized
        return replace(quantized, scales=quantized.scales * self.count, zero_points=quantized.zero_points * self.count)

    def interleaved(self, emit: Callable[[relax.Expr], relax.Expr], x: relax.Expr) -> relax.Expr:
        """Moves the phases of the ordinary convolution's result from channels to rows and columns."""
        (stride_h, stride_w), (above, before) = self.strides, self.crop
        n, rows, columns, channels = (int(dim) for dim in x.ty.shape)
        (height, width), out_channels = self.size, channels // self.count
        if self.count > 1:
            x = emit(relax.op.reshape(x, (n, rows, columns, stride_h, stride_w, out_channels)))
            x = emit(relax.op.permute_dims(x, (0, 1, 3, 2, 4, 5)))
            x = emit(relax.op.reshape(x, (n, rows * stride_h, columns * stride_w, out_channels)))
        if (height, width) == (rows * stride_h, columns * stride_w):
            return x
        return relax.op.strided_slice(x, (1, 2), (above, before), (above + height, before + width))

    @property
    def count(self) -> int:
        """The number of phases."""
        return self.strides[0] * self.strides[1]

    def kernel(self, weight: Array, zero_points: Sequence[int] = (0,)) -> Array:
        """Converts `[O, KH, KW, C]` to `[s_h * s_w * O, taps, taps, C]`, in reverse order, filled up with the zero
        point.
        """
        (stride_h, stride_w), (taps_h, taps_w) = self.strides, self.taps
        filters, kernel_h, kernel_w, channels = weight.shape
        points = np.array(zero_points, weight.dtype)
        filled = np.empty((filters, taps_h * stride_h, taps_w * stride_w, channels), weight.dtype)
        filled[:] = points.reshape(-1, 1, 1, 1)
        filled[:, :kernel_h, :kernel_w] = weight
        phases = filled.reshape(filters, taps_h, stride_h, taps_w, stride_w, channels)[:, ::-1, :, ::-1]
        return np.ascontiguousarray(phases.transpose(2, 4, 0, 1, 3, 5)).reshape(-1, taps_h, taps_w, channels)

    def _computed_kernel(self, builder: relax.BlockBuilder, weight: relax.Expr) -> relax.Expr:
        """Emits `kernel` of computed weights, whose zero point is 0."""
        (stride_h, stride_w), (taps_h, taps_w) = self.strides, self.taps
        filters, kernel_h, kernel_w, channels = (int(dim) for dim in weight.ty.shape)
        missing = [0, 0, 0, taps_h * stride_h - kernel_h, 0, taps_w * stride_w - kernel_w, 0, 0]
        filled = builder.emit(relax.op.nn.pad(weight, missing)) if any(missing) else weight
        phases = builder.emit(relax.op.reshape(filled, (filters, taps_h, stride_h, taps_w, stride_w, channels)))
        reversed_ = builder.emit(relax.op.flip(builder.emit(relax.op.flip(phases, 1)), 3))
        moved = builder.emit(relax.op.permute_dims(reversed_, (2, 4, 0, 1, 3, 5)))
        return builder.emit(relax.op.reshape(moved, (self.count * filters, taps_h, taps_w, channels)))


def _around(size: int, kernel: int, stride: int, before: int, out_size: int) -> tuple[int, int]:
    """Returns the padding of the ordinary convolution along one axis. With it, the first and last windows compute the
    first and last elements of the output.
    """
    taps, first, last = -(-kernel // stride), before // stride, (before + out_size - 1) // stride
    return taps - 1 - first, max(last - (size - 1), 0)
