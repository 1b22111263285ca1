"""Operators that keep the elements but change their shape or order: RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE,
SPACE_TO_DEPTH, DEPTH_TO_SPACE. Also SHAPE, whose result is a constant.

LiteRT's kernels for these operators copy bytes and ignore the scales of input and output. This module does the same.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.tflite.node import Node


def reshape(node: Node) -> relax.Expr:
    """Converts RESHAPE. If the second input is an int32 vector, it is the new shape; otherwise, an option contains it.
    One size may be -1 (`GetOutputShape` and `ResizeOutput` in tflite/kernels/reshape.cc).
    """
    if node.has_input(1) and len(node.input(1).shape) == 1:
        target = tuple(int(size) for size in node.integers(1))
    else:
        target = _shape_option(node)
    return movement.reshape(node, node.expr(0), target)


def _shape_option(node: Node) -> tuple[int, ...]:
    shape = node.option("new_shape")
    assert isinstance(shape, tuple)
    return () if shape == (0,) else shape  # old converters wrote (0,) for a scalar


def squeeze(node: Node) -> relax.Expr:
    """Converts SQUEEZE, which removes the given axes, or every axis of size 1 if none is given (`Prepare` in
    tflite/kernels/squeeze.cc).
    """
    named = node.option("squeeze_dims")
    assert isinstance(named, tuple)
    return movement.squeeze(node, node.expr(0), named)


def expand_dims(node: Node) -> relax.Expr:
    return movement.unsqueeze(node, node.expr(0), [node.scalar(1)])


def transpose(node: Node) -> relax.Expr:
    """Converts TRANSPOSE; negative axes count from the end (`TransposeContext` in tflite/kernels/transpose.cc)."""
    return movement.transpose(node, node.expr(0), node.integers(1).reshape(-1).tolist())


def space_to_depth(node: Node) -> relax.Expr:
    """Converts `[N, H, W, C]` to `[N, H / B, W / B, B * B * C]` (reference/space_to_depth.h)."""
    (batch, height, width, channels), block = node.image(), node.int_option("block_size", least=1)
    node.require(
        height % block == 0 and width % block == 0,
        f"cannot divide {height} x {width} by block size {block}",
        node.input(0),
    )
    rows, columns = height // block, width // block
    apart = [batch, rows, block, columns, block, channels]
    shape = [batch, rows, columns, block * block * channels]
    return movement.rearrange(node, node.expr(0), apart, _EXCHANGED, shape)


def depth_to_space(node: Node) -> relax.Expr:
    """Converts `[N, H, W, B * B * C]` to `[N, H * B, W * B, C]` (reference/depth_to_space.h)."""
    (batch, height, width, channels), block = node.image(), node.int_option("block_size", least=1)
    node.require(
        channels % (block * block) == 0, f"cannot divide {channels} channels by {block} * {block}", node.input(0)
    )
    rest = channels // (block * block)
    apart = [batch, height, width, block, block, rest]
    return movement.rearrange(node, node.expr(0), apart, _EXCHANGED, [batch, height * block, width * block, rest])


_EXCHANGED = (0, 1, 3, 2, 4, 5)


def shape(node: Node) -> relax.Expr:
    """Converts SHAPE to a constant, because shapes are static."""
    node.require(node.output.dtype in ("int32", "int64"), f"writes {node.output.dtype}, not int32 or int64")
    return relax.const(np.array(node.input(0).shape, node.output.dtype), node.output.dtype)
