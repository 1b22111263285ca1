"""The values of the delegate's graph during the conversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from service.compiler.qnn.types import QuantizedType


@dataclass(frozen=True, eq=False)
class Stored:
    """Integers, and the type that gives their real values."""

    expr: relax.Expr
    type: QuantizedType


@dataclass(frozen=True, eq=False)
class Dynamic:
    """Real values, float32, that the layer which reads them quantizes when the model runs.

    Attributes:
        axes: the axes along which layers compute the ranges. XNNPACK quantizes a value once for all layers, so layers
            that need different ranges cannot share it.
    """

    expr: relax.Expr
    axes: set[tuple[int, ...]] = field(default_factory=set)


# An expression of real values, an array of real values that are known while importing, or one of the classes above.
Value = Any
