"""Chooses the formulas of bilinear interpolation, and prepares the tables that kernels read."""

from __future__ import annotations

import numpy as np

from service.compiler.kernels.arithmetic.numerics import STORED, expressed
from service.compiler.kernels.layout import Image
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.resize import Bilinear
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


def blend_of(mode: Mode, operation: Operation) -> tuple[Bilinear, int]:
    """Returns the formula of a `qnn.resize_bilinear` in `mode`, and the number that kernels add to its stored values.

    Raises:
        Declined: no kernel computes this resize.
    """
    return expressed(mode, operation, Bilinear), STORED.bias(operation.per_tensor("in_type"))


def tables_of(formula: Bilinear, operation: Operation, source: Image) -> list[Array]:
    """Returns six tables, three for rows and three for columns: the byte offsets of both neighbors, and the distance.

    A float32 distance is returned as its bits.
    """
    tables: list[Array] = []
    for positions, step in zip(formula.axes(operation, source.shape), (source.row, source.pixel), strict=True):
        lower, upper, distance = positions
        real = distance.dtype.kind == "f"
        tables += [lower * step, upper * step, distance.astype(np.float32).view(np.int32) if real else distance]
    return [table.astype(np.int32) for table in tables]
