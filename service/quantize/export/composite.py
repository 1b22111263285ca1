"""An operator of ONNX that stands for several of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from service.quantize.export.graph import Graph

Write = Callable[[Graph, relax.Var], None]


@dataclass(frozen=True)
class Composite:
    """An operator of ONNX that is to be written.

    Attributes:
        x: its operand.
    """

    x: relax.Var
    write: Write
