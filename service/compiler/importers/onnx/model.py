"""An ONNX model as plain values: the file's contents after they were checked, independent of their encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.importers.qdq import Operator
from service.core.models.arrays import Array

OWN_DOMAIN = "octet"  # domain of the operators that `qdq` creates; files must not use it
REQUANTIZE = f"{OWN_DOMAIN}.Requantize"
CONV_TRANSPOSE = f"{OWN_DOMAIN}.QLinearConvTranspose"
# A DequantizeLinear of constants that the file writes as Cast, Sub and Mul. ONNX Runtime computes the real constants
# before it looks for conversions, so it quantizes no operator that reads them.
DEQUANTIZE_CONSTANT = f"{OWN_DOMAIN}.DequantizeConstant"
STORED_MATMUL = f"{OWN_DOMAIN}.StoredMatMul"  # product of two computed matrices of stored values; the result is real
MATMUL_ADD = f"{OWN_DOMAIN}.QLinearMatMulAdd"  # product of stored values by constant weights, with a constant real bias
# product of real values by real weights, with a constant row that may be rounded
REAL_MATMUL_ADD = f"{OWN_DOMAIN}.RealMatMulAdd"
# Products of float32 whose two operands are first rounded to bfloat16: ONNX's operator type -> the type here.
BFLOAT16_PRODUCTS = {name: f"{OWN_DOMAIN}.BFloat16{name}" for name in ("Conv", "Gemm", "MatMul")}
ROUND = f"{OWN_DOMAIN}.Round"  # rounds float32 to the values of the 16-bit or smaller type in the attribute `to`
# Products and quotients of real values and scales, which may be per axis or in blocks: conversions of small real types.
TIMES_SCALE, BY_SCALE = f"{OWN_DOMAIN}.TimesScale", f"{OWN_DOMAIN}.DivideByScale"
STORED_CONV = f"{OWN_DOMAIN}.StoredConv"  # convolution of stored values that ONNX Runtime computes on real values


@dataclass(frozen=True, eq=False)
class Tensor:
    """A constant.

    Attributes:
        dtype: numpy's name of the element type, or the schema's name in lower case if numpy has none (`int4`).
        data: the elements of a constant that operators can use, read-only. bfloat16 is converted to float32.
        oddity: the reason why no operator can use the constant, such as "is kept in another file"; None if operators
            can.
        was_zero: true for each scale that was 0 in the file, if `zero_scales` has replaced it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Array | None = None
    oddity: str | None = None
    was_zero: Array | None = None


@dataclass(frozen=True)
class Items:
    """A sequence, or an optional value (which has at most one item), during the import. Its length is constant.

    Attributes:
        names: the names of its tensors.
    """

    names: tuple[str, ...]


# The operators that make such values of tensors.
MAKES_ITEMS = frozenset({"SequenceConstruct", "SequenceEmpty", "SplitToSequence"})
# The operators that read such values. All other operators read tensors.
READS_ITEMS = frozenset(
    {
        *("ConcatFromSequence", "Identity", "OptionalGetElement", "OptionalHasElement", "Optional", "SequenceAt"),
        *("SequenceErase", "SequenceInsert", "SequenceLength"),
    }
)


@dataclass(frozen=True)
class Unread:
    """An attribute other than a number, a text, a tensor or a branch."""

    what: str


@dataclass(frozen=True, eq=False)
class Branch:
    """A subgraph: a branch of an `If`, or the body of a `Loop` or a `Scan`.

    Attributes:
        operators: sorted, so that each operator comes after those whose outputs it reads.
        constants: the constants, by name.
        outputs: names of tensors in the branch or in the enclosing graph.
        captures: names of the tensors of the enclosing graph that the branch reads.
        inputs: names of the tensors that the operator passes to a body. A branch of an `If` has none.
    """

    operators: tuple[Operator, ...]
    constants: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    captures: tuple[str, ...]
    inputs: tuple[str, ...] = ()


AttributeValue = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Tensor | Branch | Unread


@dataclass(frozen=True)
class End:
    """An input or output of the model.

    Attributes:
        dtype: "" if the file leaves the type open, as it may for an output.
        shape: the sizes of the dimensions; the name of a symbolic dimension; None for a dimension that the file leaves
            open. The whole shape is None if the file leaves the rank open.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class Model:
    """The main graph. Its operators are sorted, so that each comes after those whose outputs it reads.

    Attributes:
        opset: the version of ONNX's own operators.
        operators: the operators. Their types include a domain other than ONNX's own: `com.microsoft.QLinearAdd`.
        constants: the constants, by name.
        metadata_text: the labels and preprocessing as text (`onnx/file/metadata.py`); "" if the file has none.
    """

    opset: int
    operators: tuple[Operator, ...]
    constants: Mapping[str, Tensor]
    inputs: tuple[End, ...]
    outputs: tuple[End, ...]
    size_bytes: int
    metadata_text: str = ""
