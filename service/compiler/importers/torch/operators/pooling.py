"""Pooling and means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax

from service.compiler.importers.builder import pooling as builder
from service.compiler.importers.builder.pooling import Windows, overhang
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import dilating
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

Pair = builder.Pair


def _max_pool2d(
    node: Node,
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> Value:
    _, quantized = node.activation(input, rank=4)
    if node.pair(dilation, 1) != (1, 1):
        return dilating.max_pool2d(node, input, kernel_size, stride, padding, dilation, ceil_mode)
    return pooled(node, input, quantized, Pool.of(node, kernel_size, stride, padding, ceil_mode, False), is_max=True)


def avg_pool2d(node: Node, input: Any, *window: Any, **named: Any) -> Value:
    return pooled(node, input, node.activation(input)[1], Pool.of(node, *window, **named))


@dataclass(frozen=True)
class Pool:
    """The checked arguments of a pooling."""

    window: Pair
    strides: Pair
    around: Pair
    ceil: bool
    counts_padding: bool

    @classmethod
    def of(
        cls,
        node: Node,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: Any = False,
        count_include_pad: Any = True,
        divisor_override: Any = None,
    ) -> Pool:
        if divisor_override is not None:
            node.unsupported("divides by a number other than the size of its window (divisor_override)")
        geometry = _geometry(node, kernel_size, stride, padding)
        return cls(*geometry, node.flag(ceil_mode), node.flag(count_include_pad))

    def windows(self, node: Node, shape: tuple[int, ...]) -> Windows:
        """Returns the windows on `[N, C, H, W]`. In `ceil_mode`, the last window must start inside the image or its
        left padding, and may extend beyond the end (`pooling_output_shape_pad_lr` in native/Pool.h).
        """
        bottom, right = (
            max(overhang(node, size, window, step, pad, pad, ceil="inside" if self.ceil else ""), 0)
            for size, window, step, pad in zip(shape[2:], self.window, self.strides, self.around, strict=True)
        )
        return Windows((2, 3), self.window, self.strides, (*self.around, bottom, right))


def pooled(node: Node, input: Any, out_type: QuantizedType, pool: Pool, *, is_max: bool = False) -> Value:
    """Converts pooling. Padding that counts becomes part of the image. Elements that `ceil_mode` adds beyond the
    padding never count.
    """
    x, quantized = node.activation(input, rank=4)
    windows, counted = pool.windows(node, x.shape), pool.around if pool.counts_padding else (0, 0)
    types = (quantized, out_type)
    return node.image(
        x, lambda image: builder.pooled(node, image, windows, types, is_max=is_max, counted=counted), out_type
    )


def adaptive_avg_pool2d(node: Node, input: Any, output_size: Any) -> Value:
    """Converts adaptive pooling, with windows of equal size that do not overlap."""
    x, quantized = node.activation(input)
    cell = cell_sizes(node, x.shape, output_size)

    def body(image: relax.Var) -> relax.Expr:
        return ops.avg_pool2d(image, quantized, quantized, pool_size=cell, strides=cell, adaptive=True)

    return node.image(x, body, quantized)


def adapted(node: Node, input: Any, output_size: Any, out_type: QuantizedType) -> Value:
    x, quantized = node.activation(input, rank=4)
    apart, axes, keepdims = cells(node, x.shape, output_size)
    windows = x.expr if apart is None else node.emit(relax.op.reshape(x.expr, apart), "windows")
    return node.value(ops.mean(windows, quantized, out_type, axes=axes, keepdims=keepdims), out_type)


def cells(node: Node, shape: tuple[int, ...], output_size: Any) -> tuple[list[int] | None, list[int], bool]:
    """Expresses adaptive pooling of `[N, C, H, W]` as a mean. If the windows have equal sizes, each of their two
    dimensions becomes a separate axis.

    Returns:
        The shape with these axes (None if it is the image's shape), the axes of the mean, and true if these axes are
        kept.
    """
    down, across = cell_sizes(node, shape, output_size)
    batch, channels, height, width = shape
    if (down, across) == (height, width):
        return None, [2, 3], True
    return [batch, channels, height // down, down, width // across, across], [3, 5], False


def cell_sizes(node: Node, shape: tuple[int, ...], output_size: Any) -> tuple[int, int]:
    """Returns the rows and columns of each window if `[N, C, H, W]` is pooled to `output_size`."""
    if len(shape) != 4:
        node.unsupported(f"on a tensor with {len(shape)} dimensions, not 4")
    items = output_size if isinstance(output_size, list | tuple) else [output_size, output_size]
    height, width = shape[2:]
    rows, columns = node.pair(
        [size if wanted is None else wanted for wanted, size in zip(items, (height, width), strict=False)], 1
    )
    if height % rows or width % columns:
        node.unsupported(f"divides {height} x {width} into {rows} x {columns} windows of different sizes")
    return height // rows, width // columns


def _mean(node: Node, input: Any, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Value:
    return averaged(node, input, dim, keepdim, node.activation(input)[1])


def averaged(node: Node, input: Any, dim: Any, keepdim: Any, out_type: QuantizedType) -> Value:
    """Converts the mean over dimensions, or over all dimensions if none is given."""
    x, quantized = node.activation(input)
    rank = len(x.shape)
    axes = node.reduced_axes(dim, rank)
    node.require(bool(axes), "is a mean without dimensions")
    return node.value(ops.mean(x.expr, quantized, out_type, axes=axes, keepdims=node.flag(keepdim)), out_type)


def _geometry(node: Node, kernel_size: Any, stride: Any, padding: Any) -> tuple[Pair, Pair, Pair]:
    """Returns the window, the strides and the padding. By default, the strides equal the window, so windows do not
    overlap.
    """
    window, around = node.pair(kernel_size, 1), node.pair(padding, 0)
    strides = node.pair(stride, 1) if stride not in ((), [], None) else window
    for extent, pad in zip(window, around, strict=True):
        node.require(2 * pad <= extent, f"has padding {pad} for a window of {extent}; at most half of it is allowed")
    return window, strides, around


RULES = {
    "aten::max_pool2d": _max_pool2d,
    "quantized::max_pool2d": _max_pool2d,
    "aten::avg_pool2d": avg_pool2d,
    "aten::adaptive_avg_pool2d": adaptive_avg_pool2d,
    "aten::mean": _mean,
}
