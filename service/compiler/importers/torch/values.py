"""Values of TorchScript's variables during an import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that the model computes.

    Attributes:
        expr: the tensor's stored values. The axes are in the order of the file.
        quantized: the type of the stored values, or None for real values.
        exact_scale: the scale in float64, as in PyTorch's quantizer. None if it equals that of `quantized`, which is
            float32. `exact_scale` is used only to compute another scale.
    """

    expr: relax.Var
    quantized: QuantizedType | None = None
    exact_scale: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.expr)

    @property
    def dtype(self) -> str:
        return str(self.expr.ty.dtype)


@dataclass(eq=False)
class Instance:
    """A module, or any other object of a class in the archive's code."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)


class Unknown:
    """The result of an operator that cannot be compiled. Everything that is computed from it is unknown, too."""


UNKNOWN = Unknown()
