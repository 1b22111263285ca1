"""REVERSE_SEQUENCE, MATRIX_DIAG and MATRIX_SET_DIAG."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.indexing.gathering import indices_of


def reverse_sequence(node: Node) -> relax.Expr:
    """Converts REVERSE_SEQUENCE: reverses the first elements of each sequence, as many as its length (`ReverseSequence`
    in reference_ops.h).
    """
    shape, lengths = node.input(0).shape, node.input(1).shape
    along, across = (node.axis(node.int_option(name), len(shape)) for name in ("seq_dim", "batch_dim"))
    node.require(along != across, "has the same axis for sequences and batches")
    node.require(lengths == (shape[across],), f"has {list(lengths)} lengths for {shape[across]} sequences")
    others = [axis for axis in range(len(shape)) if axis not in (along, across)]
    order = [across, along, *others]
    turned = node.emit(relax.op.permute_dims(node.expr(0), order), "turned")
    batch, steps, rest = shape[across], shape[along], [shape[axis] for axis in others]
    rows = node.emit(relax.op.reshape(turned, (batch * steps, math.prod(rest))), "rows")
    length = node.emit(relax.op.reshape(indices_of(node, 1), (batch, 1)), "lengths")
    positions = node.literal(np.arange(steps, dtype=np.int32)[np.newaxis])
    one = relax.const(np.array(1, np.int32))
    last = node.emit(relax.op.subtract(length, one), "last")
    mirrored = node.emit(relax.op.subtract(last, positions), "mirrored")
    inside = node.emit(relax.op.less(positions, length), "inside")
    step = node.emit(relax.op.where(inside, mirrored, positions), "step")
    starts = node.literal((np.arange(batch, dtype=np.int32) * steps).reshape(-1, 1).astype(np.int32))
    taken = node.emit(relax.op.take(rows, node.emit(relax.op.add(step, starts), "at"), axis=0, mode="clip"), "taken")
    apart = node.emit(relax.op.reshape(taken, (batch, steps, *rest)), "apart")
    return node.emit(relax.op.permute_dims(apart, [order.index(axis) for axis in range(len(shape))]))


def matrix_diag(node: Node) -> relax.Expr:
    """Converts MATRIX_DIAG: `[…, N]` -> `[…, N, N]`, zero outside of the diagonal. Quantized values are padded with a
    stored 0, as in LiteRT.
    """
    shape, dtype = node.input(0).shape, node.output.dtype
    node.require(bool(shape), "has a scalar input", node.input(0))
    node.require(node.input(0).dtype == dtype, f"reads {node.input(0).dtype}, but writes {dtype}")
    size = shape[-1]
    node.expect_shape((*shape, size))
    column = node.emit(relax.op.reshape(node.expr(0), (*shape, 1)), "column")
    zero = relax.const(np.array(0, dtype), dtype)
    node.reserve(size * size)
    return node.emit(relax.op.where(node.literal(np.eye(size, dtype=np.bool_)), column, zero))


def matrix_set_diag(node: Node) -> relax.Expr:
    """Converts MATRIX_SET_DIAG: replaces the main diagonal of matrices."""
    shape, diagonal = node.input(0).shape, node.input(1).shape
    size = min(shape[-2:], default=0)
    fits = len(shape) >= 2 and diagonal == (*shape[:-2], size)
    node.require(fits, f"has the diagonal {list(diagonal)} for matrices {list(shape)}")
    node.require(node.input(0).dtype == node.input(1).dtype == node.output.dtype, "mixes types")
    node.reserve(math.prod(shape[-2:]))
    column = node.emit(relax.op.reshape(node.expr(1), (*diagonal, 1)), "column")
    if size < shape[-2]:
        sides = [(0, 0)] * (len(shape) - 2) + [(0, shape[-2] - size), (0, 0)]
        column = movement.pad(node, column, sides, 0, "longer")
    return node.emit(relax.op.where(node.literal(np.eye(*shape[-2:], dtype=np.bool_)), column, node.expr(0)))
