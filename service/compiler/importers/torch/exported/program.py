"""An exported program as plain, checked values, independent of the file's layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.compiler.importers.qdq import Operator
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.qnn.types import QuantizedType

QUANTIZE, DEQUANTIZE = "octet::quantize", "octet::dequantize"


@dataclass(frozen=True)
class Operand:
    """An argument that is computed or constant: `operator.inputs[place]`."""

    place: int


@dataclass(frozen=True, eq=False)
class Call(Operator):
    """An operator with the arguments of its schema: `Operand`s, lists of them, and plain values.

    Attributes:
        arguments: the positional arguments.
        named: the keyword arguments, by name.
        types: index -> type, for inputs that are stored values.
        quantized: for a conversion, the type that it converts to or from. For a fused operator, the type of its output,
            or None if the output is real.
    """

    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[int, QuantizedType] = field(default_factory=dict)
    quantized: QuantizedType | None = None


@dataclass(frozen=True)
class End:
    """An input of the program. A dimension is None if the program leaves it open."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Program:
    """The content of the archive.

    Attributes:
        calls: the calls in an order in which they can be computed.
        constants: parameters, buffers and constants, by the names that calls use.
        shapes: the shapes of tensors, if known; None for an open dimension.
        outputs: names of tensors.
    """

    calls: tuple[Call, ...]
    constants: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[int | None, ...]]
    inputs: tuple[End, ...]
    outputs: tuple[str, ...]
