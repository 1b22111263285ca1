"""Transposed convolutions of volumes, as convolutions of volumes between whose elements zeros are inserted."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.derived import derived
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.operators.convolution import conv, conv_transpose
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.onnx.operators.sliding.places import FIRST
from service.compiler.importers.onnx.operators.sliding.unpooling import spread
from service.compiler.importers.onnx.operators.sliding.volumes import VOLUME, of_volumes
from service.compiler.importers.onnx.operators.windows import transposed_sides
from service.compiler.qnn.graph import shape_of

_OF_VOLUMES = of_volumes(conv, 1)


def any_conv_transpose(node: Node) -> Value:
    """Inputs: X `[N, C, …]`, W `[C, O / groups, …]`, B, of float32."""
    shape = node.shape(0)
    if len(shape) != VOLUME:
        return conv_transpose(node)
    float32(node, *range(node.input_count))
    weights, groups = node.shape(1), node.attribute("group", 1)
    node.require(len(weights) == VOLUME, f"has weights {list(weights)}, which do not fit its input")
    channels, _, *kernel = weights
    fits = groups > 0 and channels == shape[1] and channels % groups == 0
    node.require_supported(fits, f"has {shape[1]} channels, but weights for {channels} in {groups} groups")
    strides, dilations = (node.integers_attribute(name, (1, 1, 1), 1) for name in ("strides", "dilations"))
    sides, more = transposed_sides(node, list(zip(shape[FIRST:], kernel, strides, dilations, strict=True)))
    x, pads = node.expr(0), list[tuple[int, int]]()
    for axis, (before, after) in enumerate(sides):
        index, reach = FIRST + axis, (kernel[axis] - 1) * dilations[axis]
        size = (shape[index] - 1) * strides[axis] + 1 + more[axis]
        x = spread(node, x, index, strides[axis], 0, size)
        first, last = reach - before, reach - after
        start, end = max(0, -first), size - max(0, -last)
        node.require_supported(start < end, "removes all elements of its result")
        if (start, end) != (0, size):
            x = node.emit(relax.op.strided_slice(x, [index], [start], [end]), "cropped")
        pads.append((max(0, first), max(0, last)))
    attributes = {
        "group": groups,
        "dilations": dilations,
        "pads": (*(before for before, _ in pads), *(after for _, after in pads)),
    }
    return _OF_VOLUMES(derived(node, {0: x, 1: _flipped(node, groups)}, attributes, op_type="Conv"))


def _flipped(node: Node, groups: int) -> Value:
    """Converts filters `[C, O / groups, …]` to those of the ordinary convolution, which are flipped: `[O, C / groups,
    …]`.
    """
    channels, per_group, *kernel = node.shape(1)
    known = node.known_value(1)
    if known is not None:
        whole = known.reshape(groups, channels // groups, per_group, *kernel)[..., ::-1, ::-1, ::-1]
        return whole.swapaxes(1, 2).reshape(groups * per_group, channels // groups, *kernel)
    x = node.expr(1)
    for axis in range(FIRST, VOLUME):
        x = node.emit(relax.op.flip(x, axis), "filters")
    apart = (groups, channels // groups, per_group, *kernel)
    target = (groups * per_group, *apart[1:2], *kernel)
    assert len(shape_of(x)) == VOLUME
    return movement.rearrange(node, x, apart, (0, 2, 1, 3, 4, 5), target, "filters")
