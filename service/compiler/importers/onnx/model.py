"""An ONNX model as plain values: the checked contents of the file, independent of its encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.importers.qdq import Operator
from service.core.arrays import Array

_SHOWN = 200
OWN_DOMAIN = "octet"  # domain of operators that `qdq` creates; files must not use it
REQUANTIZE = f"{OWN_DOMAIN}.Requantize"
CONV_TRANSPOSE = f"{OWN_DOMAIN}.QLinearConvTranspose"
STORED_MATMUL = f"{OWN_DOMAIN}.StoredMatMul"  # of two computed matrices of stored values, with a real result
MATMUL_ADD = f"{OWN_DOMAIN}.QLinearMatMulAdd"  # of stored values by constant weights, with a constant real bias
# Products of float32 whose first two operands are rounded to bfloat16: type in ONNX -> type here.
BFLOAT16_PRODUCTS = {name: f"{OWN_DOMAIN}.BFloat16{name}" for name in ("Conv", "Gemm", "MatMul")}
STORED_CONV = f"{OWN_DOMAIN}.StoredConv"  # of stored values, where ONNX Runtime convolves real ones


@dataclass(frozen=True, eq=False)
class Tensor:
    """A constant.

    Attributes:
        dtype: numpy's name of the element type, or the schema's name in lower case if numpy has none (`int4`).
        data: the elements of a constant without oddity, read-only; bfloat16 is converted to float32.
        oddity: why no operator can use it, such as "is kept in another file"; None if operators can.
        was_zero: for scales that replaced others, true where those were 0 (`zero_scales`).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Array | None = None
    oddity: str | None = None
    was_zero: Array | None = None


@dataclass(frozen=True)
class Unread:
    """An attribute that is not a number, a text, a tensor or a branch."""

    what: str


@dataclass(frozen=True, eq=False)
class Branch:
    """A subgraph of an `If`.

    Attributes:
        operators: in an order in which they can be computed.
        constants: by name.
        outputs: names of tensors of the branch, or of the graph around it.
        captures: names of the tensors of the graph around it that the branch reads.
    """

    operators: tuple[Operator, ...]
    constants: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    captures: tuple[str, ...]


AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Tensor | Branch | Unread


@dataclass(frozen=True)
class End:
    """An input or output of the model.

    Attributes:
        dtype: "" if the file leaves the type open, as it may for an output.
        shape: a name for a symbolic dimension, None for a dimension that the file leaves open; None for the whole shape
            if it leaves the rank open.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Model:
    """The main graph, with its operators in an order in which they can be computed.

    Attributes:
        opset: the version of ONNX's own operators.
        operators: their types include the domain if it is not ONNX's own: `com.microsoft.QLinearAdd`.
        constants: by name.
        said: the text with labels and preprocessing (`onnx/metadata.py`); empty if the file has none.
    """

    opset: int
    operators: tuple[Operator, ...]
    constants: Mapping[str, Tensor]
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    size_bytes: int
    said: str = ""


def shortened(name: str) -> str:
    """Returns a name as messages show it: a hostile file may have names of megabytes."""
    return name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"
