"""BITCAST, BITWISE_XOR and shifts."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.elementwise import require_one_dtype


def exclusive_or(node: Node) -> relax.Expr:
    require_one_dtype(node)
    return node.emit(relax.op.bitwise_xor(node.expr(0), node.expr(1)))


def right_shift(node: Node) -> relax.Expr:
    """Converts RIGHT_SHIFT, which keeps the sign. A shift is limited to 0 … the number of bits minus one
    (`RightShift` in tflite/kernels/right_shift.cc).
    """
    require_one_dtype(node)
    dtype = node.output.dtype
    least, most = (relax.const(np.array(value, dtype), dtype) for value in (0, np.dtype(dtype).itemsize * 8 - 1))
    shift = node.emit(relax.op.maximum(node.expr(1), least), "positive")
    return node.emit(relax.op.right_shift(node.expr(0), node.emit(relax.op.minimum(shift, most), "shift")))


def left_shift(node: Node) -> relax.Expr:
    """Converts STABLEHLO_SHIFT_LEFT. Shifts by the number of bits or more are undefined in LiteRT."""
    require_one_dtype(node)
    return node.emit(relax.op.left_shift(node.expr(0), node.expr(1)))


def bitcast(node: Node) -> relax.Expr:
    """Reads the bytes of a constant as another type. Computed values can only keep their type."""
    source, target = node.input(0).dtype, node.output.dtype
    if source == target:
        return node.emit(relax.op.reshape(node.expr(0), node.input(0).shape))
    data = np.ascontiguousarray(node.data(0))
    before, after = np.dtype(source).itemsize, np.dtype(target).itemsize
    if before == after:
        return node.literal(data.view(target))
    if before > after:
        return node.literal(data.reshape(*data.shape, 1).view(target))
    node.require(data.shape[-1:] == (after // before,), f"cannot read {source} {list(data.shape)} as {target}")
    return node.literal(data.view(target).reshape(data.shape[:-1]))
