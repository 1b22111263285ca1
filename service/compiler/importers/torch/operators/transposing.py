"""Transposed convolutions of rows `[N, C, L]`, images `[N, C, H, W]` and volumes `[N, C, D, H, W]`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import accumulating, volumes
from service.compiler.importers.torch.operators.movement import part_of
from service.compiler.importers.torch.packed import Packed
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOST_GROUPS = 256  # each group is a layer of its own


def transposed(node: Node, x: Value, layer: Packed, out_type: QuantizedType | None) -> Value:
    """Returns the transposed convolution of stored values. Without `out_type`, the result is real."""
    if layer.is_row:
        batch, channels, length = x.shape
        row = node.value(relax.op.reshape(x.expr, [batch, channels, 1, length]), x.quantized)
        made = transposed(node, row, replace(layer, is_row=False), out_type)
        return node.value(relax.op.reshape(made.expr, [*made.shape[:2], made.shape[3]]), out_type)
    _check(node, layer)
    if layer.groups > 1:
        return _by_groups(node, x, layer, out_type)
    if len(x.shape) == 5:
        return _of_volume(node, x, layer, out_type)
    return _of_image(node, x, layer, out_type)


def _check(node: Node, layer: Packed) -> None:
    larger = [
        more >= max(step, apart)
        for more, step, apart in zip(layer.output_padding, layer.stride, layer.dilation, strict=True)
    ]
    node.require(not any(larger), f"has output padding {list(layer.output_padding)} for strides {list(layer.stride)}")


def _by_groups(node: Node, x: Value, layer: Packed, out_type: QuantizedType | None) -> Value:
    """Computes each group as a layer of its own. The results are stored before they are joined."""
    count = layer.groups
    node.require_supported(count <= _MOST_GROUPS, f"has {count} groups; at most {_MOST_GROUPS} can be compiled")
    size, outputs = x.shape[1] // count, layer.weight.data.shape[1]
    node.require(len(layer.weight.data) == x.shape[1], f"has weights for {len(layer.weight.data)} channels")
    parts = []
    for group in range(count):
        channels = range(group * size, (group + 1) * size)
        weights = Tensor(layer.weight.data[channels.start : channels.stop], layer.weight.quantization)
        bias = None if layer.bias is None else layer.bias[group * outputs : (group + 1) * outputs]
        own = replace(layer, weight=weights, bias=bias, groups=1)
        parts.append(transposed(node, part_of(node, x, 1, channels), own, out_type).expr)
    return node.value(relax.op.concat(parts, axis=1), out_type)


def _of_volume(node: Node, x: Value, layer: Packed, out_type: QuantizedType | None) -> Value:
    """Spreads the slices apart, and computes a transposed convolution of images whose channels are the slices that a
    kernel covers, with the kernel's slices in reverse order.
    """
    weights, apart, more = layer.weight.data, layer.dilation[0], layer.output_padding[0]
    inputs, outputs, kernel, height, width = weights.shape
    reach = apart * (kernel - 1) - layer.padding[0]
    spread = volumes.spread_axis(node, x, 2, layer.stride[0])
    stacked = volumes.stacked(node, spread, kernel, 1, dilation=apart, sides=(reach, reach + more))
    turned = weights[:, :, ::-1].transpose(2, 0, 1, 3, 4)
    flat = replace(
        layer,
        weight=Tensor(
            np.ascontiguousarray(turned).reshape(kernel * inputs, outputs, height, width), layer.weight.quantization
        ),
        stride=layer.stride[1:],
        padding=layer.padding[1:],
        dilation=layer.dilation[1:],
        output_padding=layer.output_padding[1:],
    )
    return volumes.unstacked(node, _of_image(node, stacked, flat, out_type), x.shape[0])


def _of_image(node: Node, x: Value, layer: Packed, out_type: QuantizedType | None) -> Value:
    """The dialect's operator has neither dilation nor strides that exceed the kernel. A dilated kernel gets zeros
    between its elements, and a short one gets zeros at its end, whose results are removed.
    """
    quantization = layer.weight.quantization
    assert quantization is not None  # packed.py
    point = np.array(quantization.zero_points).reshape(1, -1, 1, 1).astype(np.int8)
    weights = _dilated(layer.weight.data, layer.dilation, point)
    short = [max(step - size, 0) for step, size in zip(layer.stride, weights.shape[2:], strict=True)]
    weights = _lengthened(weights, short, point)
    more = [own - extra for own, extra in zip(layer.output_padding, short, strict=True)]
    axis = None if quantization.axis is None else 0
    filters = Tensor(np.ascontiguousarray(weights.transpose(1, 0, 2, 3)), replace(quantization, axis=axis))
    own = replace(layer, weight=filters, dilation=(1, 1))
    positive = [max(each, 0) for each in more]
    make = partial(ops.conv2d_transpose, output_padding=positive)
    made = accumulating.over_images(node, x, own, make, out_type)
    for axis, each in enumerate(more, start=2):
        made = volumes.padded_axis(node, made, axis, (0, min(each, 0)))
    return made


def _dilated(weights: Array, dilation: tuple[int, ...], zero: Array) -> Array:
    if set(dilation) == {1}:
        return weights
    sizes = [apart * (size - 1) + 1 for apart, size in zip(dilation, weights.shape[2:], strict=True)]
    wide = np.broadcast_to(zero, (*weights.shape[:2], *sizes)).astype(weights.dtype)
    wide[:, :, :: dilation[0], :: dilation[1]] = weights
    return wide


def _lengthened(weights: Array, extra: list[int], zero: Array) -> Array:
    if not any(extra):
        return weights
    height, width = weights.shape[2:]
    longer = np.broadcast_to(zero, (*weights.shape[:2], height + extra[0], width + extra[1])).astype(weights.dtype)
    longer[:, :, :height, :width] = weights
    return longer


def spread(
    node: Node,
    x: Value,
    kernel: tuple[int, ...],
    stride: list[int],
    padding: list[int],
    more: list[int],
    dilation: list[int],
) -> Value:
    """Returns the operand with zeros between and around its elements. The transposed convolution is the convolution of
    this operand with the turned kernel (`turned`).
    """
    for index, (size, step, around, extra, apart) in enumerate(
        zip(kernel, stride, padding, more, dilation, strict=True)
    ):
        reach = apart * (size - 1) - around
        x = volumes.padded_axis(node, volumes.spread_axis(node, x, index + 2, step), index + 2, (reach, reach + extra))
    return x


def turned(weights: Array, groups: int) -> Array:
    """Returns the weights `[C, O / groups, …]` of a transposed convolution as those of a convolution,
    `[O, C / groups, …]`, in reverse order along the dimensions of the kernel.
    """
    inputs, outputs, *kernel = weights.shape
    apart = weights.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    whole = apart.reshape(groups * outputs, inputs // groups, *kernel)
    return np.ascontiguousarray(np.flip(whole, tuple(range(2, 2 + len(kernel)))))
