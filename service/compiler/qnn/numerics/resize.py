"""Bilinear interpolation over rows and columns. The model determines the position of each output between its
neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te

from service.compiler.qnn.expressions.ops import Ops, Value
from service.compiler.qnn.expressions.tensors import TENSORS
from service.compiler.qnn.numerics.expressed import Chooses
from service.compiler.qnn.numerics.formula import Scalar
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

# For each output along an axis: the index of the neighbour before it, the index of the neighbour after it, and its
# distance from the neighbour before it.
Places = tuple[Array, Array, Array]


class Bilinear:
    """A formula whose subclasses define the positions along an axis, and how four neighbours are combined (in NumPy and
    in tensor IR).
    """

    def places(self, old: int, new: int, *, align_corners: bool, half_pixel_centers: bool) -> Places:
        raise NotImplementedError

    def blend(self, corners: tuple[Any, Any, Any, Any], down: Any, right: Any) -> Any:
        """Combines top left, top right, bottom left and bottom right into the stored value, of any dtype."""
        raise NotImplementedError

    def express(self, ops: Ops, corners: Sequence[Value], down: Value, right: Value, bias: int) -> Value:
        """Returns the expression of `blend`, int32, for corners to whose stored values `bias` was added.

        Args:
            corners: int32.
            down, right: int32 distances, or the bits of float32 distances.
        """
        raise NotImplementedError

    def evaluate(self, operation: Operation, x: Array) -> Array:
        (top, bottom, down), (left, right, along) = self.axes(operation, x.shape)
        rows = x[:, top], x[:, bottom]
        corners = tuple(row[:, :, columns] for row in rows for columns in (left, right))
        a, b, c, d = corners
        return np.asarray(self.blend((a, b, c, d), down[:, None, None], along[:, None])).astype(x.dtype)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        shape, dtype = [int(dim) for dim in operation.call.ty.shape], str(operation.call.ty.dtype)
        tables = [part for axis in self.axes(operation, [int(dim) for dim in x.ty.shape]) for part in axis]
        constants = [
            relax.const(table if table.dtype.kind == "f" else table.astype(np.int32), _dtype(table)) for table in tables
        ]

        def resize(x: te.Tensor, *at: te.Tensor) -> te.Tensor:
            top, bottom, down, left, right, along = at

            def element(n: Any, h: Any, w: Any, c: Any) -> Scalar:
                corners = [x[n, row[h], column[w], c] for row in (top, bottom) for column in (left, right)]
                values = [corner.astype("int32") for corner in corners]
                vertical, horizontal = (TENSORS.bits(each, "int32") for each in (down[h], along[w]))
                return self.express(TENSORS, values, vertical, horizontal, bias=0).astype(dtype)

            return te.compute(shape, element, name="resize")

        return builder.call_te(resize, x, *constants, primfunc_name_hint="resize_bilinear")

    def axes(self, operation: Operation, shape: Any) -> tuple[Places, Places]:
        """Returns the positions of rows and of columns, for an input of `shape`."""
        size = operation.ints("size", 2, 1)
        corners, centers = operation.flag("align_corners"), operation.flag("half_pixel_centers")
        rows, columns = (
            self.places(old, new, align_corners=corners, half_pixel_centers=centers)
            for old, new in zip(shape[1:3], size, strict=True)
        )
        return rows, columns


def _dtype(table: Array) -> str:
    return "float32" if table.dtype.kind == "f" else "int32"


class TenBits(Bilinear):
    """TFLite's reference kernel of int8 (reference/resize_bilinear.h, ResizeBilinearInteger): ten bits of fraction."""

    summary = "places in 2**-10; sum of four neighbours by their weights in 2**-20, rounded once, halves away"

    def places(self, old: int, new: int, *, align_corners: bool, half_pixel_centers: bool) -> Places:
        spans = (old - 1, new - 1) if align_corners and new > 1 else (old, new)
        scale = ((spans[0] << 10) + spans[1] // 2) // spans[1]
        position = np.arange(new, dtype=np.int64) * scale
        if half_pixel_centers:
            position += scale // 2 - (1 << 9)
        lower = np.maximum(np.trunc(position / 1024).astype(np.int64), 0)
        upper = np.minimum(np.trunc((position + 1023) / 1024).astype(np.int64), old - 1)
        return lower, upper, position - (lower << 10)

    def blend(self, corners: tuple[Any, Any, Any, Any], down: Any, right: Any) -> Any:
        a, b, c, d = (corner.astype(np.int64) for corner in corners)
        total = (a * (1024 - down) + c * down) * (1024 - right) + (b * (1024 - down) + d * down) * right
        return np.trunc((total + np.where(total > 0, 1 << 19, -(1 << 19))) / (1 << 20))

    def express(self, ops: Ops, corners: Sequence[Value], down: Value, right: Value, bias: int) -> Value:
        a, b, c, d = (ops.keep(corner - ops.const(bias)) if bias else corner for corner in corners)
        whole, zero = ops.const(1 << 10), ops.const(0)
        up, left = ops.keep(whole - down), ops.keep(whole - right)
        total = ops.keep((a * up + c * down) * left + (b * up + d * down) * right)
        magnitude = ops.keep((ops.max(total, zero - total) + ops.const(1 << 19)) >> ops.const(20))
        return ops.select(total < zero, zero - magnitude, magnitude) + ops.const(bias)


class WideTenBits(TenBits):
    """TFLite's reference kernel of int16 (reference/resize_bilinear.h, ResizeBilinearInteger): the sum has 64 bits."""

    def express(self, ops: Ops, corners: Sequence[Value], down: Value, right: Value, bias: int) -> Value:
        a, b, c, d = (ops.cast(corner - ops.const(bias), "int64") for corner in corners)
        down, right = (ops.cast(distance, "int64") for distance in (down, right))
        whole, zero = ops.const(1 << 10, "int64"), ops.const(0, "int64")
        up, left = whole - down, whole - right
        total = (a * up + c * down) * left + (b * up + d * down) * right
        magnitude = (ops.max(total, zero - total) + ops.const(1 << 19, "int64")) >> ops.const(20, "int64")
        return ops.cast(ops.select(total < zero, zero - magnitude, magnitude), "int32") + ops.const(bias)


class Float(Bilinear):
    """TFLite's reference kernel of uint8 (reference/resize_bilinear.h, ResizeBilinear): float32, each step rounded."""

    summary = "float32: trunc(a * (1 - dy) * (1 - dx) + c * dy * (1 - dx) + b * (1 - dy) * dx + d * dy * dx + 0.5)"

    def places(self, old: int, new: int, *, align_corners: bool, half_pixel_centers: bool) -> Places:
        spans = (old - 1, new - 1) if align_corners and new > 1 else (old, new)
        scale, half = np.float32(spans[0]) / np.float32(spans[1]), np.float32(0.5)
        position = np.arange(new, dtype=np.float32)
        position = (position + half) * scale - half if half_pixel_centers else position * scale
        lower = np.maximum(np.floor(position).astype(np.int64), 0)
        upper = np.minimum(np.ceil(position).astype(np.int64), old - 1)
        return lower, upper, position - lower.astype(np.float32)

    def blend(self, corners: tuple[Any, Any, Any, Any], down: Any, right: Any) -> Any:
        a, b, c, d = (corner.astype(np.float32) for corner in corners)
        up, left = np.float32(1) - down, np.float32(1) - right
        total = a * up * left + c * down * left + b * up * right + d * down * right
        return np.trunc(total + np.float32(0.5))

    def express(self, ops: Ops, corners: Sequence[Value], down: Value, right: Value, bias: int) -> Value:
        a, b, c, d = (ops.keep(ops.cast(corner, "float32"), "float32") for corner in corners)
        down, right = (ops.bits(distance, "float32") for distance in (down, right))
        one = ops.const(1.0, "float32")
        up, left = ops.keep(one - down, "float32"), ops.keep(one - right, "float32")
        products = (a * up * left, c * down * left, b * up * right, d * down * right)
        first, *others = (ops.keep(product, "float32") for product in products)
        for other in others:
            first = ops.keep(first + other, "float32")
        return ops.cast(first + ops.const(0.5, "float32"), "int32")  # a cast rounds towards zero


class ElevenBits(Bilinear):
    """XNNPACK: eleven bits of fraction (xnn_indirection_init_resize_bilinear2d_hwc_q11; s8/u8 ibilinear)."""

    summary = "weights in 2**-11: ((top << 11) + (bottom - top) * dy + (1 << 21)) >> 22, top = (a << 11) + (b - a) * dx"

    def places(self, old: int, new: int, *, align_corners: bool, half_pixel_centers: bool) -> Places:
        less = int(align_corners and new != 1)
        scale, half = np.float32(old - less) / np.float32(new - less), np.float32(0.5)
        position = np.arange(new, dtype=np.float32) * scale
        if half_pixel_centers:
            position = np.clip(position + (half * scale - half), np.float32(0), np.float32(old - 1))
        lower = position.astype(np.int64)
        weight = np.rint((position - lower.astype(np.float32)) * np.float32(2048)).astype(np.int64)
        return lower, np.minimum(lower + 1, old - 1), weight

    def blend(self, corners: tuple[Any, Any, Any, Any], down: Any, right: Any) -> Any:
        a, b, c, d = (corner.astype(np.int64) for corner in corners)
        top, bottom = (a << 11) + (b - a) * right, (c << 11) + (d - c) * right
        return ((top << 11) + (bottom - top) * down + (1 << 21)) >> 22

    def express(self, ops: Ops, corners: Sequence[Value], down: Value, right: Value, bias: int) -> Value:
        # If `bias` is added to all four corners, the result grows by exactly `bias`, because it is rounded down.
        a, b, c, d = corners
        count, half = ops.const(11), ops.const(1 << 21)
        top, bottom = (ops.keep((x << count) + (y - x) * right) for x, y in ((a, b), (c, d)))
        return ((top << count) + (bottom - top) * down + half) >> ops.const(22)


class ByStorage(Chooses):
    """TFLite's reference kernels: one for int8, and another for uint8."""

    summary = f"int8: {TenBits.summary}; uint8: {Float.summary}"

    def chosen(self, operation: Operation) -> Bilinear:
        return TenBits() if operation.per_tensor("in_type").dtype == "int8" else Float()
