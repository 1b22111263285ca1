"""An ONNX operator that replaces several operators of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from service.quantize.export.graph import Graph

Write = Callable[[Graph, relax.Var], None]


@dataclass(frozen=True)
class Composite:
    """An ONNX operator to write.

    Attributes:
        x: the operator's operand.
    """

    x: relax.Var
    write: Write
