"""Writes a TFLite model of any single operator. The inputs are called `x0`, `x1`, …, and the outputs `y0`, `y1`, …."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from service.core.models.arrays import Array
from tests.support.tflite_builder import ModelBuilder, Quant


@dataclass(frozen=True)
class End:
    """An input or output of the model."""

    shape: Sequence[int]
    dtype: npt.DTypeLike
    quant: Quant | None = None


@dataclass(frozen=True)
class Constant:
    """A constant tensor in the file."""

    data: Array
    quant: Quant | None = None
    bits: int = 8  # of a stored element; 4 or 2 for int8 data that is packed


def ints(*values: int) -> Constant:
    """Returns a constant int32 vector, such as a shape or axes."""
    return Constant(np.array(values, np.int32))


def operator_model(
    name: str,
    inputs: Sequence[End | Constant],
    outputs: Sequence[End],
    options: Any = None,
    version: int | None = None,
) -> bytes:
    """Returns the model of an operator. `options` is the schema's `…OptionsT` object."""
    builder = ModelBuilder()
    taken = [
        builder.tensor(f"x{position}", part.shape, part.dtype, part.quant)
        if isinstance(part, End)
        else builder.constant(f"x{position}", part.data, part.quant, part.bits)
        for position, part in enumerate(inputs)
    ]
    made = [builder.tensor(f"y{position}", end.shape, end.dtype, end.quant) for position, end in enumerate(outputs)]
    builder.operator(name, taken, made, options, version)
    given = [index for index, part in zip(taken, inputs, strict=True) if isinstance(part, End)]
    return builder.build(given, made)


def unary_model(
    name: str, shape: Sequence[int], dtype: npt.DTypeLike, x: Quant, y: Quant, options: Any = None
) -> bytes:
    """Returns the model of an operator with one operand. The output has the operand's shape and dtype."""
    return operator_model(name, [End(shape, dtype, x)], [End(shape, dtype, y)], options)
