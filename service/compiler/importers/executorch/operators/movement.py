"""Nodes that only move, select or repeat elements. Stored values stay stored."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.executorch.node import Node
from service.compiler.importers.executorch.values import Stored, Value


def _copy(node: Node) -> Value:
    """`Copy`: the output may have another shape, with as many elements."""
    return _reshaped(node, node.output.shape)


def _reshape(node: Node) -> Value:
    """`StaticReshape`. A size of 0 stands for all remaining elements."""
    node.check_flags()
    wanted = node.numbers("new_shape")
    node.require(len(wanted) == node.integer("num_dims"), f"has {len(wanted)} sizes")
    if wanted.count(0) == 1:
        known = math.prod(size for size in wanted if size)
        wanted[wanted.index(0)] = math.prod(node.extents(node.value("input_id"))) // max(known, 1)
    return _reshaped(node, tuple(wanted))


def _reshaped(node: Node, shape: tuple[int, ...]) -> Value:
    x = node.value("input_id")
    own = node.extents(x)
    node.require(math.prod(own) == math.prod(shape), f"cannot reshape {list(own)} to {list(shape)}")
    return x if own == shape else node.move_elements(x, lambda x: relax.op.reshape(x, shape))


def _transpose(node: Node) -> Value:
    node.check_flags()
    x, order = node.value("input_id"), node.numbers("perm")
    rank = len(node.extents(x))
    node.require(sorted(order) == list(range(rank)), f"permutes {rank} axes by {order[:8]}")
    return node.move_elements(x, lambda x: relax.op.permute_dims(x, order)) if rank else x


def _slice(node: Node) -> Value:
    node.check_flags()
    x, starts, sizes = node.value("input_id"), node.numbers("offsets"), node.numbers("sizes")
    shape = node.extents(x)
    fits = len(starts) == len(sizes) == len(shape)
    node.require(fits, f"slices shape {list(shape)} at {starts[:8]}")
    sizes = [size or extent - start for size, extent, start in zip(sizes, shape, starts, strict=True)]
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    inside = all(start < end <= extent for start, end, extent in zip(starts, ends, shape, strict=True))
    node.require(inside, f"slices shape {list(shape)} from {starts} to {ends}")
    return node.move_elements(x, lambda x: relax.op.strided_slice(x, list(range(len(shape))), starts, ends))


def _pad(node: Node) -> Value:
    node.check_flags()
    x, before, after = node.value("input_id"), node.numbers("pre_paddings"), node.numbers("post_paddings")
    shape = node.extents(x)
    node.require(len(before) == len(after) == len(shape), f"pads shape {list(shape)} by {before[:8]} and {after[:8]}")
    movement.check_pads(node, [*before, *after])
    fill = node.real("padding_value")
    widths = [width for pair in zip(before, after, strict=True) for width in pair]
    if isinstance(x, Stored):
        steps = np.float32(fill) / np.float32(x.type.scale) + np.float32(x.type.zero_point)
        stored = int(np.rint(np.clip(steps, x.type.min, x.type.max)))
        return node.move_elements(x, lambda x: relax.op.nn.pad(x, widths, pad_value=stored))
    return node.move_elements(x, lambda x: relax.op.nn.pad(x, widths, pad_value=fill))


def _concatenate(count: int) -> Callable[[Node], Value]:
    def convert(node: Node) -> Value:
        node.check_flags()
        values = [node.value(f"input{index}_id") for index in range(1, count + 1)]
        shapes = [node.extents(value) for value in values]
        axis = movement.joined_axis(node, shapes, node.integer("axis"))
        stored = [value for value in values if isinstance(value, Stored)]
        if not stored:
            parts = [node.expr(f"input{index}_id") for index in range(1, count + 1)]
            return node.emit(relax.op.concat(parts, axis))
        node.require(len(stored) == count, "joins quantized and real values")
        out_type = node.type_of(node.output)
        same = all(
            (each.type.scales, each.type.zero_points) == (out_type.scales, out_type.zero_points) for each in stored
        )
        node.require_supported(same, "joins values with different scales, which XNNPACK refuses")
        return Stored(node.emit(relax.op.concat([each.expr for each in stored], axis)), out_type)

    return convert


RULES: dict[str, Callable[[Node], Value]] = {
    "Copy": _copy,
    **{f"Concatenate{count}": _concatenate(count) for count in range(2, 6)},
    "StaticConstantPad": _pad,
    "StaticReshape": _reshape,
    "StaticSlice": _slice,
    "StaticTranspose": _transpose,
}
