"""DeformConv: a convolution whose windows read the image at positions that another input moves.

For each position in a window, four pixels around the moved position are read and interpolated; pixels outside of the
image are 0. The columns of all windows are then multiplied by the filters
(core/providers/cpu/nn/deform_conv.cc).
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import product

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.real import Convert, float32
from service.compiler.importers.onnx.operators.sliding.places import indices
from service.compiler.importers.onnx.operators.windows import Axis, axes_of
from service.compiler.importers.real import Real
from service.compiler.qnn import ops

_MOST_ELEMENTS = 1 << 28


def deform_conv(node: Node) -> Value:
    """Inputs: X `[N, C, H, W]`, W `[O, C / groups, KH, KW]`, offset `[N, 2 * offset groups * KH * KW, OH, OW]`, B
    `[O]`, mask `[N, offset groups * KH * KW, OH, OW]`. The offsets of rows come before those of columns.
    """
    float32(node, *(index for index in range(node.input_count) if node.has(index)))
    shape, filters = node.shape(0), node.shape(1)
    node.require_supported(len(shape) == len(filters) == 4, f"has an input of shape {list(shape)}, not [N, C, H, W]")
    (batch, channels, *sizes), (outputs, per_group, *kernel) = shape, filters
    groups, parts = node.attribute("group", 1), node.attribute("offset_group", 1)
    fits = groups > 0 and channels == per_group * groups and outputs % groups == 0
    node.require(fits and parts > 0 and channels % parts == 0, f"has weights {list(filters)} for {channels} channels")
    axes = axes_of(node, sizes, kernel)
    counts, taps = [axis.count for axis in axes], math.prod(kernel)
    wanted = (batch, 2 * parts * taps, *counts)
    node.require(node.shape(2) == wanted, f"has offsets {list(node.shape(2))}, not {list(wanted)}", node.name(2))
    columns = batch * channels * taps * math.prod(counts)
    node.require_supported(columns <= _MOST_ELEMENTS, f"reads {columns} elements; at most {_MOST_ELEMENTS}")
    real = Real(node.emit, node.expr(0))
    read = _interpolated(node, real, axes, parts)  # [N * parts * taps * OH * OW, C / parts]
    whole = (batch, parts, taps, *counts)
    if node.has(4):
        given = (batch, parts * taps, *counts)
        node.require(node.shape(4) == given, f"has a mask {list(node.shape(4))}, not {list(given)}", node.name(4))
        factors = real(relax.op.reshape(node.expr(4), (math.prod(whole), 1)))
        read = real.apply(relax.op.multiply, read, factors)
    apart = real(relax.op.reshape(read, (*whole[:3], math.prod(counts), channels // parts)))
    turned = real(relax.op.permute_dims(apart, (0, 1, 4, 2, 3)))  # [N, parts, C / parts, taps, OH * OW]
    rows = real(relax.op.reshape(turned, (batch, groups, per_group * taps, math.prod(counts))))
    weights = real(relax.op.reshape(node.expr(1), (1, groups, outputs // groups, per_group * taps)))
    sums = node.emit(relax.op.reshape(real(ops.real_matmul(weights, rows)), (batch, outputs, *counts)), "sums")
    if not node.has(3):
        return sums
    node.require(node.shape(3) == (outputs,), f"has a bias {list(node.shape(3))} for {outputs} filters")
    return node.emit(relax.op.add(sums, real(relax.op.reshape(node.expr(3), (outputs, 1, 1)))))


def _interpolated(node: Node, real: Real, axes: list[Axis], parts: int) -> relax.Expr:
    """Returns the value at each moved position, `[N * parts * taps * OH * OW, C / parts]`."""
    batch, channels, height, width = node.shape(0)
    taps, counts = math.prod(axis.kernel for axis in axes), [axis.count for axis in axes]
    pixels = real(relax.op.reshape(real.x, (batch, parts, channels // parts, height * width)))
    rows = real(relax.op.permute_dims(pixels, (0, 1, 3, 2)))
    rows = real(relax.op.reshape(rows, (batch * parts * height * width, channels // parts)))
    offsets = real(relax.op.reshape(node.expr(2), (batch, parts, taps, 2, *counts)))
    starts = np.repeat(np.arange(batch * parts) * height * width, taps * math.prod(counts)).reshape(-1, 1)
    positions = []
    for axis in range(2):
        fixed = np.stack([at[axis] for at in indices(axes)]).astype(np.float32)
        extent = (taps, counts[0], 1) if axis == 0 else (taps, 1, counts[1])
        own = real(relax.op.strided_slice(offsets, [3], [axis], [axis + 1]))
        own = real(relax.op.reshape(own, (batch, parts, taps, *counts)))
        moved = real.apply(relax.op.add, own, node.literal(fixed.reshape(extent)))
        positions.append(real(relax.op.reshape(moved, (batch * parts * taps * math.prod(counts), 1))))
    first = [real.apply(relax.op.floor, each) for each in positions]
    after = [real.apply(relax.op.subtract, *pair) for pair in zip(positions, first, strict=True)]
    before = [real.apply(relax.op.subtract, 1.0, each) for each in after]
    corners = []
    for steps in product((0, 1), repeat=2):
        at = [real.apply(relax.op.add, each, float(step)) for each, step in zip(first, steps, strict=True)]
        bounded = [
            real.apply(relax.op.minimum, real.apply(relax.op.maximum, each, 0.0), float(size - 1))
            for each, size in zip(at, (height, width), strict=True)
        ]
        inside = real.apply(
            relax.op.logical_and,
            *(real.apply(relax.op.equal, *pair) for pair in zip(at, bounded, strict=True)),
        )
        row, column = (real(relax.op.astype(each, "int64")) for each in bounded)
        flat = real.apply(relax.op.add, real.apply(relax.op.multiply, row, node.literal(np.array(width))), column)
        flat = real.apply(relax.op.add, flat, node.literal(starts.astype(np.int64)))
        taken = real(relax.op.take(rows, real(relax.op.reshape(flat, (len(starts),))), 0, mode="clip"))
        value = real.apply(relax.op.where, inside, taken, 0.0)
        factors = [after[axis] if step else before[axis] for axis, step in enumerate(steps)]
        corners.append(real.apply(relax.op.multiply, real.apply(relax.op.multiply, *factors), value))
    return reduce(lambda one, other: real.apply(relax.op.add, one, other), corners)


DEFORMED: dict[str, tuple[Convert, tuple[int, int]]] = {
    "DeformConv": (deform_conv, (3, 5)),
}
