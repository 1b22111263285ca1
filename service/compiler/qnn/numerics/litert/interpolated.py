"""Functions of one 16-bit value that LiteRT interpolates linearly between 513 points, in both modes.

Source: LUTPopulate and LUTLookup of int16 (kernels/internal/common.h), in float32. The functions are those of 8-bit
values (`numerics.functions.unary`), which are evaluated at the points only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from service.compiler.qnn.numerics.functions.unary import EXP, GELU, LOG, Tabulated
from service.compiler.qnn.numerics.scaling.affine import round_away
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.types import STORAGE_RANGES
from service.core.models.arrays import Array

_LOW, _HIGH = STORAGE_RANGES["int16"]
_PIECES, _BITS = 512, 7  # linear pieces, each of 2**7 values
_FIRST = -(_LOW >> _BITS)


class InterpolatedFunction(Tabulated):
    """A function of real values at 513 points. Each piece is shifted by half of its error in the middle."""

    def __init__(self, name: str, function: Callable[[Operation, Array], Array]) -> None:
        """`function` maps float32 to float32."""
        self.function = function
        self.summary = f"{name} at 513 points in float32, interpolated linearly with 7 bits"

    def values(self, operation: Operation, x: Array) -> Array:
        points = self.points(operation)
        piece, offset = _FIRST + (x >> _BITS), x & ((1 << _BITS) - 1)
        slope = points[piece + 1] - points[piece]
        return np.asarray(points[piece] + ((slope * offset + (1 << (_BITS - 1))) >> _BITS))

    def points(self, operation: Operation) -> Array:
        """Returns the stored values at the 513 points, int64."""
        in_scale, out_scale = (np.float32(operation.per_tensor(name).scale) for name in ("in_type", "out_type"))
        low, high = in_scale * np.float32(_LOW), in_scale * np.float32(_HIGH)
        step = (high - low) / np.float32(_PIECES)
        factor = np.float32(_HIGH - _LOW + 1) / (out_scale * np.float32(_HIGH) - out_scale * np.float32(_LOW))
        at = low + np.arange(_PIECES + 1, dtype=np.float32) * step
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = self.function(operation, at) * factor
            middle = round_away(self.function(operation, at[:-1] + step / np.float32(2)) * factor)
            last = self.function(operation, np.array([high], np.float32)) * factor
            interpolated = round_away((scaled[1:] + round_away(scaled[:-1])) / np.float32(2))
            pieces = round_away(scaled[:-1]) - round_away((interpolated - middle) / np.float32(2))
            stored = np.append(pieces, round_away(last))
        return np.asarray(np.clip(stored, np.float32(_LOW), np.float32(_HIGH)).astype(np.int64))


def _rsqrt(operation: Operation, x: Array) -> Array:
    """Returns the largest output for a value that is not positive (GenericPrepare in kernels/elementwise.cc)."""
    largest = np.float32(_HIGH) * np.float32(operation.per_tensor("out_type").scale)
    root = np.float32(1) / np.sqrt(np.where(x > 0, x, np.float32(1)))
    return np.where(x > 0, root, largest)


EXP16 = InterpolatedFunction("exp", EXP.function)
GELU16 = InterpolatedFunction("gelu", GELU.function)
LOG16 = InterpolatedFunction("log", LOG.function)
RSQRT16 = InterpolatedFunction("rsqrt", _rsqrt)
