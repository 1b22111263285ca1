"""Convolutions of volumes `[N, C, D, H, W]` as convolutions of images.

For each position along the depth, the slices that a kernel covers become the channels of one image. Integer sums do not
depend on their order, so this is exact for stored values.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.values import Value
from service.core.models.arrays import Array

_MOST_SLICES = 256


def stacked(
    node: Node,
    x: Value,
    kernel: int,
    groups: int,
    *,
    stride: int = 1,
    dilation: int = 1,
    sides: tuple[int, int] = (0, 0),
) -> Value:
    """Returns `[N * D', groups * kernel * C / groups, H, W]`: for each group, the slices of a kernel in their order.

    Args:
        sides: how many slices are added before and after the depth. A negative number removes slices.
    """
    padded = padded_axis(node, x, 2, sides)
    batch, channels, depth, height, width = padded.shape
    reach = dilation * (kernel - 1)
    node.require(reach < depth, f"has a kernel of {reach + 1} slices, which is larger than the {depth} padded slices")
    node.require(channels % groups == 0, f"cannot divide {channels} channels into {groups} groups")
    node.require_supported(kernel <= _MOST_SLICES, f"has a kernel of {kernel} slices; at most {_MOST_SLICES}")
    count = (depth - reach - 1) // stride + 1
    parts = []
    for index in range(kernel):
        start = index * dilation
        part = relax.op.strided_slice(padded.expr, [2], [start], [start + (count - 1) * stride + 1], [stride])
        rows = node.emit(relax.op.permute_dims(node.emit(part, "slice"), [0, 2, 1, 3, 4]), "slice")
        apart = [batch * count, groups, channels // groups, height, width]
        parts.append(node.emit(relax.op.reshape(rows, apart), "slice"))
    whole = parts[0] if kernel == 1 else node.emit(relax.op.concat(parts, axis=2), "slices")
    return node.value(relax.op.reshape(whole, [batch * count, kernel * channels, height, width]), x.quantized)


def unstacked(node: Node, x: Value, batch: int) -> Value:
    """Returns `[N * D, O, H, W]` as `[N, O, D, H, W]`."""
    rows, channels, height, width = x.shape
    apart = node.emit(relax.op.reshape(x.expr, [batch, rows // batch, channels, height, width]), "volumes")
    return node.value(relax.op.permute_dims(apart, [0, 2, 1, 3, 4]), x.quantized)


def stacked_filters(weights: Array) -> Array:
    """Returns `[O, C / groups, KD, KH, KW]` as `[O, KD * C / groups, KH, KW]`."""
    outputs, _, _, height, width = weights.shape
    return np.ascontiguousarray(weights.transpose(0, 2, 1, 3, 4)).reshape(outputs, -1, height, width)


def padded_axis(node: Node, x: Value, axis: int, sides: tuple[int, int]) -> Value:
    """Adds zeros before and after an axis. A negative number removes elements."""
    before, after = sides
    if before < 0 or after < 0:
        start, end = max(-before, 0), x.shape[axis] - max(-after, 0)
        node.require(start < end, f"removes all elements of axis {axis} of shape {list(x.shape)}")
        x = node.value(relax.op.strided_slice(x.expr, [axis], [start], [end], [1]), x.quantized)
    if before <= 0 and after <= 0:
        return x
    widths = [0] * (2 * len(x.shape))
    widths[2 * axis : 2 * axis + 2] = max(before, 0), max(after, 0)
    zero = 0.0 if x.quantized is None else float(x.quantized.zero_point)
    return node.value(relax.op.nn.pad(x.expr, widths, pad_value=zero), x.quantized)


def spread_axis(node: Node, x: Value, axis: int, stride: int) -> Value:
    """Adds `stride - 1` zeros between the elements of an axis."""
    if stride == 1:
        return x
    shape = list(x.shape)
    apart = node.value(relax.op.reshape(x.expr, [*shape[: axis + 1], 1, *shape[axis + 1 :]]), x.quantized)
    wider = padded_axis(node, apart, axis + 1, (0, stride - 1))
    size = shape[axis]
    whole = [*shape[:axis], size * stride, *shape[axis + 1 :]]
    joined = node.value(relax.op.reshape(wider.expr, whole), x.quantized)
    return padded_axis(node, joined, axis, (0, 1 - stride))
