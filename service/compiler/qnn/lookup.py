"""Reads rows of a table of stored weights, such as an embedding, and dequantizes only these rows.

A dequantized table would be four or eight times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class Table:
    """Constant weights: real = (stored - point) * scale, each step rounded to float32.

    Attributes:
        stored: integers of at most 16 bits.
        scales, points: float32 scales of any sign, and integers. Both have one value for each block, and as many axes
            as `stored`.
        sizes: the length of a block along each axis. The last block of an axis may be shorter.
    """

    stored: Array
    scales: Array
    points: Array
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, stored: Array, kind: QuantizedType) -> Table:
        """Returns the table of stored values of the given type."""
        grid, sizes = [1] * stored.ndim, [*stored.shape]
        if kind.axis is not None:
            grid[kind.axis], sizes[kind.axis] = len(kind.scales), 1
        elif kind.blocks is not None:
            grid = [*kind.grid]
            for axis, size in kind.blocks:
                sizes[axis] = size
        scales = np.array(kind.scales, np.float32).reshape(grid)
        return cls(stored, scales, np.array(kind.zero_points, np.int32).reshape(grid), tuple(sizes))


def looked_up(emit: Emit, table: Table, indices: relax.Expr, axis: int) -> relax.Call:
    """Returns the real values at `indices` along an axis. The indices' axes replace that axis.

    Args:
        indices: int32 or int64, at least 0. Larger indices than the last are clamped to it.
    """
    stored = emit(relax.op.take(relax.const(table.stored), indices, axis, mode="clip"))
    real = emit(relax.op.astype(stored, "float32"))
    if table.points.any():
        points = _parameters(emit, table, table.points, indices, axis)
        real = emit(relax.op.subtract(real, points))
    return relax.op.multiply(real, _parameters(emit, table, table.scales, indices, axis))


def _parameters(emit: Emit, table: Table, values: Array, indices: relax.Expr, axis: int) -> relax.Expr:
    """Returns the scales or zero points of the elements at `indices`, float32. They broadcast to these elements."""
    if (values == values.flat[0]).all():
        return relax.const(np.float32(values.flat[0]))
    values = values.astype(np.float32)
    wanted = shape_of(indices)
    if values.shape[axis] == 1:
        shape = (*values.shape[:axis], *(1,) * len(wanted), *values.shape[axis + 1 :])
        each: relax.Expr = relax.const(values.reshape(shape))
    else:
        size = table.sizes[axis]
        divisor = relax.const(np.array(size, str(indices.ty.dtype)), str(indices.ty.dtype))
        blocks = indices if size == 1 else emit(relax.op.floor_divide(indices, divisor))
        each = emit(relax.op.take(relax.const(values), blocks, axis, mode="clip"))
    for other, (count, size) in enumerate(zip(values.shape, table.sizes, strict=True)):
        if other == axis or count == 1 or size == 1:
            continue
        blocks = relax.const(np.arange(table.stored.shape[other], dtype=np.int64) // size, "int64")
        each = emit(relax.op.take(each, blocks, other if other < axis else other - 1 + len(wanted), mode="clip"))
    return each


def bits_of(stored: Array) -> int:
    """Returns the smallest of 2, 4, 8 and 16 bits in which all stored values fit."""
    low, high = int(stored.min(initial=0)), int(stored.max(initial=0))
    signed = np.issubdtype(stored.dtype, np.signedinteger)
    needed = max(high.bit_length(), (-low - 1).bit_length() if low < 0 else 0) + int(signed)
    return next((bits for bits in (2, 4, 8) if needed <= bits), 16)
