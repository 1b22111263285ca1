"""Convolutions of real values: rows `[N, C, L]`, images `[N, C, H, W]` and volumes `[N, C, D, H, W]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from service.compiler.importers.channels_first import filters_channels_last
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import transposing, volumes
from service.compiler.importers.torch.operators.real import operand
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops


def _convolved(
    node: Node,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
) -> Value:
    """Converts a convolution. The padding may be a word (`same` or `valid`). The batch axis may be absent."""
    x, weights = node.real_tensor(input), _constant(node, weight)
    positions = weights.data.ndim - 2
    if positions not in (1, 2, 3) or len(x.shape) not in (positions + 1, positions + 2):
        node.unsupported(f"on a tensor with {len(x.shape)} dimensions, and weights with {weights.data.ndim}")
    if len(x.shape) == positions + 1:
        return _without_batch(
            node, x, lambda one: _convolved(node, one, weights, bias, stride, padding, dilation, groups)
        )
    steps, apart = (node.each(value, positions, 1) for value in (stride, dilation))
    sides = _sides(node, padding, weights.data.shape[2:], steps, apart)
    return convolved(node, x, weights, bias, steps, sides, apart, node.integer(groups, 1))


def convolved(
    node: Node,
    x: Value,
    weight: Tensor,
    bias: Any,
    stride: list[int],
    sides: list[tuple[int, int]],
    dilation: list[int],
    groups: int,
) -> Value:
    """Returns the convolution of a batch, with its padding before and after each dimension."""
    positions = len(stride)
    if positions == 1:
        batch, channels, length = x.shape
        rows = node.value(relax.op.reshape(x.expr, [batch, channels, 1, length]), None)
        of_rows = Tensor(weight.data[:, :, None])
        made = convolved(node, rows, of_rows, bias, [1, *stride], [(0, 0), *sides], [1, *dilation], groups)
        return node.value(relax.op.reshape(made.expr, [*made.shape[:2], made.shape[3]]), None)
    if positions == 3:
        kernel = weight.data.shape[2]
        stacked = volumes.stacked(node, x, kernel, groups, stride=stride[0], dilation=dilation[0], sides=sides[0])
        flat = Tensor(volumes.stacked_filters(weight.data))
        made = convolved(node, stacked, flat, bias, stride[1:], sides[1:], dilation[1:], groups)
        return volumes.unstacked(node, made, x.shape[0])
    kernel = relax.const(filters_channels_last(weight.data))
    moved = None if bias is None else operand(node, bias)
    (top, bottom), (left, right) = sides

    def body(image: relax.Var) -> relax.Expr:
        return ops.real_conv2d(
            image,
            kernel,
            moved,
            strides=stride,
            padding=(top, left, bottom, right),
            dilation=dilation,
            groups=groups,
        )

    return node.image(x, body, None)


def _constant(node: Node, weight: Any) -> Tensor:
    if not isinstance(weight, Tensor) or weight.quantization is not None:
        node.unsupported("has weights that are computed or quantized")
    return weight


def _without_batch(node: Node, x: Value, convert: Any) -> Value:
    one = node.value(relax.op.reshape(x.expr, [1, *x.shape]), None)
    made = convert(one)
    return node.value(relax.op.reshape(made.expr, made.shape[1:]), None)


def _sides(
    node: Node, padding: Any, kernel: tuple[int, ...], strides: list[int], dilations: list[int]
) -> list[tuple[int, int]]:
    """Returns the padding before and after each dimension. With `same`, if the total is odd, the additional element
    goes at the end (`_convolution_same` in ATen/native/Convolution.cpp).
    """
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding != "same":
        return [(each, each) for each in node.each(padding, len(kernel), 0)]
    if set(strides) != {1}:
        node.unsupported("has strides together with the padding 'same'")
    totals = [apart * (size - 1) for size, apart in zip(kernel, dilations, strict=True)]
    return [(total // 2, total - total // 2) for total in totals]


def _convolution(
    node: Node,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: Any,
    output_padding: Any,
    groups: Any,
    *_: Any,
) -> Value:
    """Converts a convolution as a trace contains it. The arguments after `groups` are flags that select kernels."""
    if node.flag(transposed):
        return _transposed(node, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolved(node, input, weight, bias, stride, padding, dilation, groups)


def _transposed(
    node: Node,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
) -> Value:
    """Converts a transposed convolution: a convolution with the turned kernel of the operand, whose elements zeros keep
    apart.
    """
    x, weights = node.real_tensor(input), _constant(node, weight)
    positions = weights.data.ndim - 2
    if len(x.shape) == positions + 1:
        return _without_batch(
            node,
            x,
            lambda one: _transposed(node, one, weights, bias, stride, padding, output_padding, groups, dilation),
        )
    steps, around, more, apart = (
        node.each(value, positions, least)
        for value, least in ((stride, 1), (padding, 0), (output_padding, 0), (dilation, 1))
    )
    count = node.integer(groups, 1)
    node.require(len(weights.data) % count == 0, f"cannot divide its channels into {count} groups")
    spread = transposing.spread(node, x, weights.data.shape[2:], steps, around, more, apart)
    kernel = Tensor(transposing.turned(weights.data, count))
    ones = [1] * positions
    return convolved(node, spread, kernel, bias, ones, [(0, 0)] * positions, apart, count)


# Rules for operands that are not quantized, like `real.RULES`.
RULES: dict[str, Callable[..., Value]] = {
    "aten::_convolution": _convolution,
    "aten::_convolution_mode": _convolved,
    "aten::convolution": _convolution,
    **{f"aten::conv{count}d": _convolved for count in (1, 2, 3)},
    "aten::conv_transpose1d": _transposed,
    "aten::conv_transpose2d": _transposed,
    "aten::conv_transpose3d": _transposed,
}
