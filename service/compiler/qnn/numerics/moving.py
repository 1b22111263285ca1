"""Operators that copy stored values without computing. These operators give the same results in every mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array


class TakePixels:
    """The formula of `qnn.take_pixels`."""

    summary = "copies"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        rows, columns = taken_pixels(operation)
        return x[:, rows][:, :, columns]

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        rows, columns = (relax.const(np.array(positions, np.int64)) for positions in taken_pixels(operation))
        return relax.op.take(builder.emit(relax.op.take(x, rows, 1, mode="clip")), columns, 2, mode="clip")


def taken_pixels(operation: Operation) -> tuple[Sequence[int], Sequence[int]]:
    """Returns the rows and columns of a `qnn.take_pixels`."""
    rows, columns = ([int(position) for position in operation.attr(name)] for name in ("rows", "columns"))
    return rows, columns
