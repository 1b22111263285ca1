"""Windows and means."""

from __future__ import annotations

from typing import Any

from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops

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


def _avg_pool2d(
    node: Node,
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Value:
    """Padding that counts becomes part of the image; what `ceil_mode` adds beyond it never counts."""
    x, quantized = node.activation(input, rank=4)
    window, strides, around = _geometry(node, kernel_size, stride, padding)
    if divisor_override is not None:
        node.unsupported("divides by something else than the size of its window")
    top, left, bottom, right = _sides(node, x.shape, window, strides, around, node.flag(ceil_mode))

    def body(image: relax.Var) -> relax.Expr:
        sides = (top, left, bottom, right)
        if node.flag(count_include_pad) and any(around):
            down, across = around
            widths = [0, 0, down, down, across, across, 0, 0]
            image = node.emit(relax.op.nn.pad(image, widths, pad_value=quantized.zero_point), "padded")
            sides = (0, 0, max(bottom - down, 0), max(right - across, 0))
        return ops.avg_pool2d(image, quantized, quantized, pool_size=window, strides=strides, padding=sides)

    return node.image(x, body, quantized)


def _adaptive_avg_pool2d(node: Node, input: Any, output_size: Any) -> Value:
    """Windows of one size are an axis of their own, and this is the mean over it."""
    x, quantized = node.activation(input, rank=4)
    items = output_size if isinstance(output_size, list | tuple) else [output_size, output_size]
    batch, channels, height, width = x.shape
    rows, columns = node.pair(
        [size if wanted is None else wanted for wanted, size in zip(items, (height, width), strict=False)], 1
    )
    if height % rows or width % columns:
        node.unsupported(f"makes {rows} x {columns} windows of different sizes from {height} x {width}")
    if (rows, columns) == (1, 1):
        return node.value(ops.mean(x.expr, quantized, quantized, axes=(2, 3), keepdims=True), quantized)
    apart = [batch, channels, rows, height // rows, columns, width // columns]
    windows = node.emit(relax.op.reshape(x.expr, apart), "windows")
    return node.value(ops.mean(windows, quantized, quantized, axes=(3, 5), keepdims=False), quantized)


def _mean(node: Node, input: Any, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Value:
    x, quantized = node.activation(input)
    rank = len(x.shape)
    axes = {node.axis(each, rank) for each in (range(rank) if dim is None else node.sizes(dim))}
    node.require(bool(axes), "is the mean over no dimension")
    return node.value(ops.mean(x.expr, quantized, quantized, axes=sorted(axes), keepdims=node.flag(keepdim)), quantized)


def _geometry(node: Node, kernel_size: Any, stride: Any, padding: Any) -> tuple[Pair, Pair, Pair]:
    """Window, strides and padding; without strides, windows lie side by side."""
    window, around = node.pair(kernel_size, 1), node.pair(padding, 0)
    strides = node.pair(stride, 1) if stride not in ((), [], None) else window
    for extent, pad in zip(window, around, strict=True):
        node.require(2 * pad <= extent, f"pads by {pad} a window of {extent}")
    return window, strides, around


def _sides(
    node: Node, shape: tuple[int, ...], window: Pair, strides: Pair, around: Pair, ceil: bool
) -> tuple[int, int, int, int]:
    """Padding at the top, left, bottom and right (`pooling_output_shape_pad_lr` in native/Pool.h).

    In `ceil_mode` a last window may begin inside the image or its left padding and reach beyond its end.
    """
    ends = []
    for size, extent, step, pad in zip(shape[2:], window, strides, around, strict=True):
        node.require(size + 2 * pad >= extent, f"has a window of {extent} on {size} elements")
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
