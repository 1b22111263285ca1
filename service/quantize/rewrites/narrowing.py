"""bfloat16: rounds operands of layers to bfloat16, in the form that `importers.onnx.rewrites.rounding` recognizes. Sums
are float32, in ONNX Runtime and here. Weights take half the bytes of float32.
"""

from __future__ import annotations

from collections.abc import Collection

from service.compiler.importers.onnx.file import encoding
from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS
from service.compiler.qnn.numerics.sums.bfloat16 import BFLOAT16, rounded
from service.core.errors import InvalidInput
from service.quantize.file.document import Document, Node, rewire

OPERANDS = 2


def check_narrow(document: Document, names: Collection[str]) -> None:
    """Checks that the operators that produce these tensors can run in bfloat16.

    Raises:
        InvalidInput: one of the operators cannot run in bfloat16, or would not be faster.
    """
    for node in document.nodes:
        if node.outputs[0] in names and (found := objection(document, node)):
            raise InvalidInput(f"{node.outputs[0]} is {found[0]}", hint=found[1])


def objection(document: Document, node: Node) -> tuple[str, str] | None:
    """If an operator should not run in bfloat16, returns the reason and a remedy; otherwise None.

    The operator must be one of `BFLOAT16_PRODUCTS`. Depthwise convolutions are faster in float32, because bfloat16
    instructions multiply pairs of elements, which would belong to two channels.
    """
    if node.op_type not in BFLOAT16_PRODUCTS:
        return f"produced by {node.op_type}, which cannot run in bfloat16", f"{', '.join(BFLOAT16_PRODUCTS)} can"
    if _is_depthwise(document, node):
        return "the result of a depthwise convolution, which does not gain from bfloat16", "leave it in float"
    return None


def narrow(document: Document, names: Collection[str]) -> None:
    """For each operator that produces one of these tensors, rounds both operands. The operators are float in
    `document`. Constants are rounded before they are stored, and other operands at run time.
    """
    rounds: dict[str, str] = {}  # operand -> the tensor that contains its rounded values
    made: list[Node] = []
    for node in document.nodes:
        if node.outputs[0] in names:
            for name in node.inputs[:OPERANDS]:
                if name not in rounds:
                    rounds[name] = round_operand(document, name, made)
            node = rewire(node, {index: rounds[name] for index, name in enumerate(node.inputs[:OPERANDS])})
        made.append(node)
    document.nodes = made


def round_operand(document: Document, name: str, made: list[Node]) -> str:
    """Adds the operators that round a tensor to bfloat16. Returns the name of the rounded float32 values."""
    if name in document.constants:
        narrowed = document.add_constant(f"{name}_bfloat16", rounded(document.constants[name]), BFLOAT16)
    else:
        narrowed = document.new_name(f"{name}_bfloat16")
        made.append(Node.create("Cast", (name,), narrowed, to=encoding.DTYPES[BFLOAT16]))
    widened = document.new_name(f"{name}_rounded")
    made.append(Node.create("Cast", (narrowed,), widened, to=encoding.DTYPES["float32"]))
    return widened


def _is_depthwise(document: Document, node: Node) -> bool:
    weights = document.constants.get(node.inputs[1])
    return node.attributes.get("group", 1) != 1 and weights is not None and weights.shape[1] == 1
