"""An ONNX model as plain values: what the file says, checked, and nothing of how it says it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

_SHOWN = 200
UNBOUNDED = (-math.inf, math.inf)
OWN_DOMAIN = "octet"  # of operators that `qdq` makes; no file may name it
REQUANTIZE = f"{OWN_DOMAIN}.Requantize"


@dataclass(frozen=True, eq=False)
class Tensor:
    """A constant.

    Attributes:
        dtype: numpy's name of the element type, or the schema's name in lower case if numpy has none (`int4`).
        data: the elements of a constant without oddity, read-only.
        oddity: why no operator can use it, as in "is kept in another file"; None if one may.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Array | None = None
    oddity: str | None = None


@dataclass(frozen=True)
class Unread:
    """An attribute that is not a number, a text or a tensor."""

    what: str


AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Tensor | Unread


@dataclass(frozen=True, eq=False)
class Operator:
    """A node of the graph.

    Attributes:
        op_type: with its domain where that is not ONNX's own: `com.microsoft.QLinearAdd`.
        inputs: names of tensors, "" for an optional input that is left out.
        clamp: real bounds of the output, of an activation that `qdq` has put into the operator.
    """

    index: int
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]
    clamp: tuple[float, float] = UNBOUNDED

    @property
    def label(self) -> str:
        """As errors name it: `Conv #17`."""
        return f"{self.op_type} #{self.index}"


@dataclass(frozen=True)
class End:
    """An input or output of the model.

    Attributes:
        shape: a name where a dimension is symbolic, None where it is not said; None in all where the rank is not.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Model:
    """The main graph, its operators in an order in which they can be computed.

    Attributes:
        opset: version of ONNX's own operators.
        constants: by name.
    """

    opset: int
    operators: tuple[Operator, ...]
    constants: Mapping[str, Tensor]
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    size_bytes: int


def shortened(name: str) -> str:
    """A name as messages show it: a hostile file may have names of megabytes."""
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"
