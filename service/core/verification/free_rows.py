"""Outputs with a number of rows that depends on the data.

A build returns them with as many rows as there can be at most, and their number in a further output, whose name ends
with `COUNT`. The source framework returns only the rows that count. Rows are along the first axis of a build's output
that is longer than 1; a build has at least two of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature

COUNT = ".count"


def fill_rows(outputs: Sequence[Array], signature: ModelSignature) -> list[Array]:
    """Returns the outputs of the source framework in the form that a build returns. Rows that are missing contain -1,
    or 0 if they are real or unsigned. Outputs that do not fit are returned unchanged.
    """
    specs = {spec.name: spec for spec in signature.outputs}
    filled, counts = [], []
    for spec, output in zip(signature.outputs, outputs, strict=False):
        if f"{spec.name}{COUNT}" not in specs or len(specs) == len(outputs):
            filled.append(output)
            continue
        axis = next(axis for axis, size in enumerate(spec.shape) if size > 1)
        if output.ndim != len(spec.shape) or output.shape[axis] > spec.shape[axis]:
            return list(outputs)
        counts.append(np.array([output.shape[axis]], np.int64))
        widths = [(0, spec.shape[axis] - output.shape[axis] if index == axis else 0) for index in range(output.ndim)]
        filled.append(np.pad(output, widths, constant_values=-1 if output.dtype.kind == "i" else 0))
    return [*filled, *counts]
