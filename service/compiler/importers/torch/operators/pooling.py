"""Pooling and means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

Pair = tuple[int, int]


def _max_pool2d(
    node: Node,
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> Value:
    x, quantized = node.activation(input, rank=4)
    window, strides, around = _geometry(node, kernel_size, stride, padding)
    if node.pair(dilation, 1) != (1, 1):
        node.unsupported("has a dilated window")
    sides = _sides(node, x.shape, window, strides, around, node.flag(ceil_mode))
    return node.image(
        x,
        lambda image: ops.max_pool2d(image, quantized, quantized, pool_size=window, strides=strides, padding=sides),
        quantized,
    )


def _avg_pool2d(node: Node, input: Any, *window: Any, **named: Any) -> Value:
    return pooled(node, input, node.activation(input)[1], Average.of(node, *window, **named))


@dataclass(frozen=True)
class Average:
    """The checked arguments of `avg_pool2d`."""

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
    ) -> Average:
        if divisor_override is not None:
            node.unsupported("divides by a number other than the size of its window (divisor_override)")
        geometry = _geometry(node, kernel_size, stride, padding)
        return cls(*geometry, node.flag(ceil_mode), node.flag(count_include_pad))

    def sides(self, node: Node, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
        return _sides(node, shape, self.window, self.strides, self.around, self.ceil)


def pooled(node: Node, input: Any, out_type: QuantizedType, average: Average) -> Value:
    """Converts average pooling. Padding that counts becomes part of the image. Elements that `ceil_mode` adds beyond
    the padding never count.
    """
    x, quantized = node.activation(input, rank=4)
    top, left, bottom, right = average.sides(node, x.shape)

    def body(image: relax.Var) -> relax.Expr:
        sides = (top, left, bottom, right)
        if average.counts_padding and any(average.around):
            down, across = average.around
            widths = [0, 0, down, down, across, across, 0, 0]
            image = node.emit(relax.op.nn.pad(image, widths, pad_value=quantized.zero_point), "padded")
            sides = (0, 0, max(bottom - down, 0), max(right - across, 0))
        window, strides = average.window, average.strides
        return ops.avg_pool2d(image, quantized, out_type, pool_size=window, strides=strides, padding=sides)

    return node.image(x, body, out_type)


def _adaptive_avg_pool2d(node: Node, input: Any, output_size: Any) -> Value:
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
    axes = {node.axis(each, rank) for each in (range(rank) if dim is None else node.sizes(dim))}
    node.require(bool(axes), "is a mean without dimensions")
    return node.value(ops.mean(x.expr, quantized, out_type, axes=sorted(axes), keepdims=node.flag(keepdim)), out_type)


def _geometry(node: Node, kernel_size: Any, stride: Any, padding: Any) -> tuple[Pair, Pair, Pair]:
    """Returns the window, the strides and the padding. By default, the strides equal the window, so windows do not
    overlap.
    """
    window, around = node.pair(kernel_size, 1), node.pair(padding, 0)
    strides = node.pair(stride, 1) if stride not in ((), [], None) else window
    for extent, pad in zip(window, around, strict=True):
        node.require(2 * pad <= extent, f"has padding {pad} for a window of {extent}; at most half of it is allowed")
    return window, strides, around


def _sides(
    node: Node, shape: tuple[int, ...], window: Pair, strides: Pair, around: Pair, ceil: bool
) -> tuple[int, int, int, int]:
    """Returns the padding at the top, left, bottom and right (`pooling_output_shape_pad_lr` in native/Pool.h).

    In `ceil_mode`, the last window must start inside the image or its left padding, and may extend beyond the end.
    """
    ends = []
    for size, extent, step, pad in zip(shape[2:], window, strides, around, strict=True):
        node.require(size + 2 * pad >= extent, f"has a window of {extent}, which does not fit {size} elements")
        count = (size + 2 * pad - extent + (step - 1 if ceil else 0)) // step + 1
        if ceil and (count - 1) * step >= size + pad:
            count -= 1
        ends.append(max((count - 1) * step + extent - size - pad, 0))
    return around[0], around[1], ends[0], ends[1]


RULES = {
    "aten::max_pool2d": _max_pool2d,
    "quantized::max_pool2d": _max_pool2d,
    "aten::avg_pool2d": _avg_pool2d,
    "aten::adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "aten::mean": _mean,
}
