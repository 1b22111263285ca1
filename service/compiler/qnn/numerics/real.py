"""Sums of products of float32 values: in float64, where a product is exact, and in one order, so that the result does
not depend on how they are computed. Runtimes that add in float32 come within a few units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te

from service.compiler.qnn.numerics.formula import Array, Scalar, pointwise
from service.compiler.qnn.operation import Operation


class RealConv2d:
    """qnn.real_conv2d."""

    summary = "float32(sum(x * w) + bias), added in float64: within rounding of float32 sums, not equal to them"

    def evaluate(self, operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
        """Row by row of the kernel, column by column, channel by channel, as compiled code adds."""
        filters, kernel_h, kernel_w, per_group = weight.shape
        groups = operation.integer("groups")
        (stride_h, stride_w), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
        top, left, bottom, right = operation.ints("padding", 4, 0)
        padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
        n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
        own = weight.astype(np.float64).reshape(groups, filters // groups, kernel_h, kernel_w, per_group)
        total = np.zeros((n, height, width, groups, filters // groups))
        for i in range(kernel_h):
            for j in range(kernel_w):
                rows = slice(i * step_h, i * step_h + (height - 1) * stride_h + 1, stride_h)
                columns = slice(j * step_w, j * step_w + (width - 1) * stride_w + 1, stride_w)
                window = padded[:, rows, columns].reshape(n, height, width, groups, per_group)
                for c in range(per_group):
                    total += window[..., c : c + 1] * own[:, :, i, j, c]
        sums = total.reshape(n, height, width, filters)
        return np.asarray((sums if bias is None else sums + bias.astype(np.float64)).astype(np.float32))

    def lower(
        self,
        operation: Operation,
        builder: relax.BlockBuilder,
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None = None,
    ) -> relax.Expr:
        top, left, bottom, right = operation.ints("padding", 4, 0)
        if top or left or bottom or right:
            x = builder.emit(relax.op.nn.pad(x, [0, 0, top, bottom, left, right, 0, 0]))
        sums = builder.emit_te(_products(operation), x, weight, primfunc_name_hint="real_conv2d")
        if bias is None:
            return pointwise(builder, "real", lambda total: total.astype("float32"), [sums])
        return pointwise(
            builder, "real", lambda total, bias: (total + bias.astype("float64")).astype("float32"), [sums, bias]
        )


def _products(operation: Operation) -> Any:
    (stride_h, stride_w), (step_h, step_w) = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    shape = [int(dim) for dim in operation.call.ty.shape]
    groups = operation.integer("groups")

    def compute(x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        filters, *extents = (int(dim) for dim in weight.shape)
        axes = [te.reduce_axis((0, extent), name) for extent, name in zip(extents, ("kh", "kw", "ic"), strict=True)]

        def term(n: Any, h: Any, w: Any, o: Any) -> Scalar:
            i, j, c = axes
            channel = o // (filters // groups) * extents[2] + c
            element = x[n, h * stride_h + i * step_h, w * stride_w + j * step_w, channel].astype("float64")
            return te.sum(element * weight[o, i, j, c].astype("float64"), axis=axes)

        return te.compute(shape, term, name="products")

    return compute
