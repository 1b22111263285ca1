"""Operators that keep the elements but change their shape or order: RESHAPE, SQUEEZE, EXPAND_DIMS, TRANSPOSE,
SPACE_TO_DEPTH, DEPTH_TO_SPACE. Also SHAPE, whose result is a constant.

LiteRT's kernels for these operators copy bytes and ignore the scales of input and output. This module does the same.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.common import same_dtype


def reshape(node: Node) -> relax.Expr:
    """Converts RESHAPE. If the second input is an int32 vector, it is the new shape; otherwise, an option contains it.
    One size may be -1 (`GetOutputShape` and `ResizeOutput` in tflite/kernels/reshape.cc).
    """
    same_dtype(node)
    if node.has_input(1) and len(node.input(1).shape) == 1:
        target = tuple(int(size) for size in node.integers(1))
    else:
        target = _shape_option(node)
    total, known = math.prod(node.input(0).shape), math.prod(size for size in target if size != -1)
    node.require(
        target.count(-1) <= 1 and all(size >= -1 for size in target) and known > 0 and total % known == 0,
        f"cannot reshape {list(node.input(0).shape)} to {list(target)}",
    )
    shape = tuple(total // known if size == -1 else size for size in target)
    node.require(math.prod(shape) == total, f"cannot reshape {list(node.input(0).shape)} to {list(target)}")
    return node.emit(relax.op.reshape(node.expr(0), shape))


def _shape_option(node: Node) -> tuple[int, ...]:
    shape = node.option("new_shape")
    assert isinstance(shape, tuple)
    return () if shape == (0,) else shape  # old converters wrote (0,) for a scalar


def squeeze(node: Node) -> relax.Expr:
    """Converts SQUEEZE, which removes the given axes, or every axis of size 1 if none is given (`Prepare` in
    tflite/kernels/squeeze.cc).
    """
    same_dtype(node)
    shape, named = node.input(0).shape, node.option("squeeze_dims")
    assert isinstance(named, tuple)
    rank = len(shape)
    node.require(
        all(-rank <= axis < rank and shape[axis] == 1 for axis in named),
        f"cannot remove the axes {list(named)} of shape {list(shape)}",
    )
    dropped = {axis % rank for axis in named} or {axis for axis in range(rank) if shape[axis] == 1}
    return node.emit(relax.op.reshape(node.expr(0), [size for axis, size in enumerate(shape) if axis not in dropped]))


def expand_dims(node: Node) -> relax.Expr:
    same_dtype(node)
    shape = list(node.input(0).shape)
    shape.insert(node.axis(node.scalar(1), len(shape) + 1), 1)
    return node.emit(relax.op.reshape(node.expr(0), shape))


def transpose(node: Node) -> relax.Expr:
    """Converts TRANSPOSE; negative axes count from the end (`TransposeContext` in tflite/kernels/transpose.cc)."""
    same_dtype(node)
    rank, named = len(node.input(0).shape), node.integers(1).reshape(-1).tolist()
    axes = [node.axis(axis, rank) for axis in named]
    node.require(sorted(axes) == list(range(rank)), f"cannot permute {rank} axes by {named}", node.input(1))
    return node.emit(relax.op.permute_dims(node.expr(0), axes)) if axes else node.expr(0)


def space_to_depth(node: Node) -> relax.Expr:
    """Converts `[N, H, W, C]` to `[N, H / B, W / B, B * B * C]` (reference/space_to_depth.h)."""
    (batch, height, width, channels), block = _image(node), node.int_option("block_size", least=1)
    node.require(
        height % block == 0 and width % block == 0,
        f"cannot divide {height} x {width} by block size {block}",
        node.input(0),
    )
    split = [batch, height // block, block, width // block, block, channels]
    return _rearranged(node, split, [batch, height // block, width // block, block * block * channels])


def depth_to_space(node: Node) -> relax.Expr:
    """Converts `[N, H, W, B * B * C]` to `[N, H * B, W * B, C]` (reference/depth_to_space.h)."""
    (batch, height, width, channels), block = _image(node), node.int_option("block_size", least=1)
    node.require(
        channels % (block * block) == 0, f"cannot divide {channels} channels by {block} * {block}", node.input(0)
    )
    split = [batch, height, width, block, block, channels // (block * block)]
    return _rearranged(node, split, [batch, height * block, width * block, channels // (block * block)])


def _image(node: Node) -> tuple[int, ...]:
    same_dtype(node)
    tensor = node.input(0)
    node.require(len(tensor.shape) == 4, f"has an input of shape {list(tensor.shape)}, not [N, H, W, C]", tensor)
    return tensor.shape


def _rearranged(node: Node, split: list[int], shape: list[int]) -> relax.Expr:
    """Reshapes to `split`, exchanges axes three and four of six, and reshapes to `shape`."""
    cells = node.emit(relax.op.reshape(node.expr(0), split), "cells")
    return node.emit(relax.op.reshape(node.emit(relax.op.permute_dims(cells, [0, 1, 3, 2, 4, 5]), "moved"), shape))


def shape(node: Node) -> relax.Expr:
    """Converts SHAPE to a constant, because shapes are static."""
    node.require(node.output.dtype in ("int32", "int64"), f"writes {node.output.dtype}, not int32 or int64")
    return relax.const(np.array(node.input(0).shape, node.output.dtype), node.output.dtype)
