"""Resizes images: computes the position in the operand of each element of the result, and interpolates between four
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from service.compiler.importers.real import Real
from service.compiler.qnn.graph import shape_of

FloatArray = NDArray[np.float32]
_HALF = np.float32(0.5)

# (positions in the result, scale, sizes before and after) -> positions in the operand, float32, as ONNX Runtime
# computes them (core/providers/cpu/tensor/upsamplebase.h, GetOriginalCoordinateFromResizedCoordinate).
PLACES: Mapping[str, Callable[[FloatArray, np.float32, int, int], FloatArray]] = {
    "align_corners": lambda x, _scale, before, after: (
        x * np.float32(before - 1) / np.float32(after - 1) if after > 1 else np.zeros_like(x)
    ),
    "asymmetric": lambda x, scale, _before, _after: x / scale,
    "half_pixel": lambda x, scale, _before, _after: (x + _HALF) / scale - _HALF,
    "half_pixel_symmetric": lambda x, scale, before, after: (
        np.float32(before) / 2 * (1 - np.float32(after) / (scale * np.float32(before))) + (x + _HALF) / scale - _HALF
    ),
    "pytorch_half_pixel": lambda x, scale, _before, after: (
        (x + _HALF) / scale - _HALF if after > 1 else np.zeros_like(x)
    ),
}


def bilinear(real: Real, axes: tuple[int, int], positions: Sequence[FloatArray]) -> relax.Call:
    """Multiplies four elements by their weights and adds them one after the other (`UpsampleBilinear` in
    core/providers/cpu/tensor/upsample.h). A weight is the product of a row's and a column's weight.

    Args:
        axes: the axes of rows and columns, which are adjacent.
        positions: the position in the operand of each row and column of the result. Positions outside of the operand
            are clamped to its edge.
    """
    shape, ends = shape_of(real.x), []
    for axis, position in zip(axes, positions, strict=True):
        last = shape[axis] - 1
        inside = np.clip(position.astype(np.float32), np.float32(0), np.float32(last))
        first = np.minimum(inside.astype(np.int64), last)
        second = np.minimum(first + 1, last)
        weights = [np.abs(inside - end.astype(np.float32)) for end in (second, first)]
        weights = [np.where(first == second, _HALF, weight).astype(np.float32) for weight in weights]
        ends.append([*zip((first, second), weights, strict=True)])
    behind = [1] * (len(shape) - axes[1] - 1)
    parts: list[relax.Call] = []
    for row, by_row in ends[0]:
        taken = real(relax.op.take(real.x, relax.const(row, "int64"), axes[0], mode="clip"))
        for column, by_column in ends[1]:
            corner = real(relax.op.take(taken, relax.const(column, "int64"), axes[1], mode="clip"))
            weight = real.apply(relax.op.multiply, _along(by_column, behind), _along(by_row, [1, *behind]))
            parts.append(relax.op.multiply(corner, weight))
    total = real(parts[0])
    for part in parts[1:-1]:
        total = real.apply(relax.op.add, total, real(part))
    return real.call(relax.op.add, total, real(parts[-1]))


def _along(weights: FloatArray, behind: Sequence[int]) -> relax.Expr:
    return relax.const(weights.reshape(-1, *behind), "float32")
