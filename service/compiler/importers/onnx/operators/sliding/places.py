"""The elements of windows over any number of axes: for each position in a window, the tensor of the elements that the
windows have there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from tvm import relax

from service.compiler.importers.builder.pooling import check_places
from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.windows import Axis, axes_of
from service.compiler.qnn.graph import shape_of
from service.core.models.arrays import Array

FIRST = 2  # the first axis of windows; the axes before are samples and channels
_MOST_ELEMENTS = (1 << 31) - 1


def pooled_axes(node: Node) -> list[Axis]:
    """Returns the windows of a pooling of `[N, C, …]` along each axis."""
    shape = node.shape(0)
    node.require_supported(len(shape) > FIRST, f"has an input of shape {list(shape)}, not [N, C, …]", node.name(0))
    kernel = node.attribute("kernel_shape", ())
    fits = len(kernel) == len(shape) - FIRST and all(isinstance(each, int) and each > 0 for each in kernel)
    node.require(fits, f"has the kernel_shape {list(kernel)[:8]} for an input {list(shape)}")
    return axes_of(node, shape[FIRST:], kernel)


def padded(node: Node, x: relax.Expr, axes: Sequence[Axis], fill: float) -> relax.Expr:
    """Returns `x` with padding on all axes."""
    widths = [0] * (2 * FIRST) + [side for axis in axes for side in (axis.before, axis.after)]
    if not any(widths):
        return x
    sizes = [axis.size + axis.before + axis.after for axis in axes]
    fits = math.prod(shape_of(x)[:FIRST]) * math.prod(sizes) <= _MOST_ELEMENTS
    node.require_supported(fits, f"pads its input to {sizes}, which is too large")
    return node.emit(relax.op.nn.pad(x, widths, pad_value=fill), "padded")


def along(node: Node, x: relax.Expr, index: int, axis: Axis) -> list[relax.Expr]:
    """Returns the elements that the windows along one axis of the padded `x` have at each position."""
    parts = []
    for position in range(axis.kernel):
        first = position * axis.dilation
        bounds = [first], [first + (axis.count - 1) * axis.stride + 1], [axis.stride]
        parts.append(node.emit(relax.op.strided_slice(x, [index], *bounds), "place"))
    return parts


def places(node: Node, x: relax.Expr, axes: Sequence[Axis]) -> list[relax.Expr]:
    """Returns the elements at each position, in the order of the positions' indices."""
    check_places(node, math.prod(axis.kernel for axis in axes))
    found = [x]
    for offset, axis in enumerate(axes):
        found = [part for each in found for part in along(node, each, FIRST + offset, axis)]
    return found


def indices(axes: Sequence[Axis]) -> list[list[Array]]:
    """Returns, for each position in a window, the index of its element along each axis, for all windows along that
    axis. Indices outside of the axis are those of the padding.
    """
    each = [
        [np.arange(axis.count) * axis.stride - axis.before + at * axis.dilation for at in range(axis.kernel)]
        for axis in axes
    ]
    return [list(position) for position in product(*each)]


def counts(axes: Sequence[Axis], counted: Sequence[tuple[int, int]]) -> Array:
    """Returns the number of elements of each window, `[1, 1, …]` float32. Elements outside of an axis are included if
    they are in the part `counted` of its padding.
    """
    total: Array = np.ones([1] * (FIRST + len(axes)), np.float64)
    for offset, (axis, (before, after)) in enumerate(zip(axes, counted, strict=True)):
        starts = np.arange(axis.count) * axis.stride - axis.before
        at = starts[:, np.newaxis] + np.arange(axis.kernel) * axis.dilation
        row = ((at >= -before) & (at < axis.size + after)).sum(axis=1)
        total = total * row.reshape(-1, *[1] * (len(axes) - offset - 1))
    return total.astype(np.float32)
