"""PAD, PADV2, MIRROR_PAD, and the two outer parts of a dilated convolution: SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.tflite.node import Node
from service.core.models.arrays import Array

_REFLECT, _SYMMETRIC = 0, 1  # MirrorPadMode in schema.fbs


def pad(node: Node) -> relax.Expr:
    """Converts PAD. Quantized values are padded with the zero point, and others with zero (`Eval` in
    tflite/kernels/pad.cc).
    """
    return movement.pad(node, node.expr(0), _amounts(node).tolist(), _zero(node))


def pad_v2(node: Node) -> relax.Expr:
    """Converts PADV2, which pads with a constant that has the input's quantization (`Eval` in
    tflite/kernels/pad.cc).
    """
    fill = node.input(2)
    node.require(fill.dtype == node.input(0).dtype, f"pads {node.input(0).dtype} with {fill.dtype}", fill)
    node.require(math.prod(fill.shape) == 1, f"pads with a tensor of shape {list(fill.shape)}, not one element", fill)
    if fill.quantization is not None and node.in_type(0) != node.per_tensor(fill):
        node.malformed("pads with a value that has another quantization", fill)
    value = node.data(2).reshape(-1)[0].item()
    return movement.pad(node, node.expr(0), _amounts(node).tolist(), value)


def mirror_pad(node: Node) -> relax.Expr:
    """Converts MIRROR_PAD, which pads with elements of the input in reverse order, starting with the second element or
    with the first (`GetPositionInInput` in tflite/kernels/mirror_pad.cc).
    """
    mode, amounts = node.int_option("mode"), _amounts(node)
    node.require(mode in (_REFLECT, _SYMMETRIC), f"has the unknown mode {mode}")
    return movement.pad_with_elements(
        node, node.expr(0), amounts.tolist(), "reflect" if mode == _REFLECT else "symmetric"
    )


def space_to_batch(node: Node) -> relax.Expr:
    """Converts `[N, …spatial, …rest]` to `[N * prod(block), …(spatial + paddings) / block, …rest]` (`SpaceToBatchND` in
    tflite/kernels/internal/reference/space_to_batch_nd.h).
    """
    shape, block = node.input(0).shape, _block(node)
    paddings = _pairs(node, len(block))
    amounts = np.zeros((len(shape), 2), np.int64)
    amounts[1 : 1 + len(block)] = paddings
    x = movement.pad(node, node.expr(0), amounts.tolist(), _zero(node), "padded")
    padded = [size + int(before + after) for size, (before, after) in zip(shape, amounts.tolist(), strict=True)]
    spatial, rest = padded[1 : 1 + len(block)], list(shape[1 + len(block) :])
    node.require(
        all(size % step == 0 for size, step in zip(spatial, block, strict=True)),
        f"cannot divide the padded shape {padded} into blocks of {list(block)}",
    )
    cells = [part for size, step in zip(spatial, block, strict=True) for part in (size // step, step)]
    inner, outer = range(2, 2 + 2 * len(block), 2), range(1, 1 + 2 * len(block), 2)
    kept = range(1 + 2 * len(block), 1 + 2 * len(block) + len(rest))
    smaller = [size // step for size, step in zip(spatial, block, strict=True)]
    result = [shape[0] * math.prod(block), *smaller, *rest]
    return movement.rearrange(node, x, [shape[0], *cells, *rest], [*inner, 0, *outer, *kept], result)


def batch_to_space(node: Node) -> relax.Expr:
    """Converts the inverse of `space_to_batch`, with crops instead of paddings (`BatchToSpaceND` in
    reference/batch_to_space_nd.h).
    """
    shape, block = node.input(0).shape, _block(node)
    crops, count = _pairs(node, len(block)), math.prod(block)
    node.require(
        shape[0] % count == 0, f"cannot divide a batch of {shape[0]} by blocks of {list(block)}", node.input(0)
    )
    batch, spatial, rest = shape[0] // count, shape[1 : 1 + len(block)], list(shape[1 + len(block) :])
    n = len(block)
    order = [
        n,
        *(axis for index in range(n) for axis in (n + 1 + index, index)),
        *range(2 * n + 1, 2 * n + 1 + len(rest)),
    ]
    larger = [size * step for size, step in zip(spatial, block, strict=True)]
    apart = [*block, batch, *spatial, *rest]
    part = "whole" if crops.any() else ""
    x = movement.rearrange(node, node.expr(0), apart, order, [batch, *larger, *rest], part)
    if not crops.any():
        return x
    begin = [int(before) for before, _ in crops]
    end = [size - int(after) for size, (_, after) in zip(larger, crops, strict=True)]
    node.require(
        all(a < b for a, b in zip(begin, end, strict=True)), f"crops all elements of shape {larger}", node.input(2)
    )
    return node.emit(relax.op.strided_slice(x, axes=list(range(1, 1 + n)), begin=begin, end=end))


def _amounts(node: Node) -> Array:
    """Returns the padding before and after each axis, `[rank, 2]`."""
    shape, amounts = node.input(0).shape, node.integers(1)
    node.require(amounts.shape == (len(shape), 2), f"has paddings of shape {list(amounts.shape)}", node.input(1))
    node.require(bool((amounts >= 0).all()), "has negative paddings", node.input(1))
    node.expect_shape(tuple(size + int(sum(map(int, row))) for size, row in zip(shape, amounts, strict=True)))
    return amounts


def _zero(node: Node) -> int:
    return node.out_type().zero_point if node.is_quantized else 0


def _block(node: Node) -> list[int]:
    block, shape = [int(step) for step in node.integers(1).reshape(-1)], node.input(0).shape
    node.require(0 < len(block) < len(shape), f"has {len(block)} block sizes for shape {list(shape)}", node.input(1))
    node.require(min(block) >= 1, f"has the block sizes {block}, which must be positive", node.input(1))
    return block


def _pairs(node: Node, axes: int) -> Array:
    """Returns the paddings or crops of the axes after the first."""
    pairs = node.integers(2)
    node.require(pairs.shape == (axes, 2), f"has paddings of shape {list(pairs.shape)}", node.input(2))
    node.require(bool((pairs >= 0).all() and (pairs < 1 << 24).all()), "has paddings out of range", node.input(2))
    return pairs
