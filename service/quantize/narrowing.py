"""bfloat16: layers whose operands are rounded to it, as `importers.onnx.rounding` reads them. Their sums are float32,
in ONNX Runtime as here; weights take half of their bytes."""

from __future__ import annotations

from collections.abc import Collection

from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS
from service.compiler.qnn.numerics.bfloat16 import BFLOAT16, rounded
from service.core.errors import InvalidInput
from service.quantize import encoding
from service.quantize.document import Document, Node, renamed

_OPERANDS = 2


def check_narrow(document: Document, names: Collection[str]) -> None:
    """Passes if bfloat16 is something for the operators that make these tensors.

    Raises:
        InvalidInput: it is not, for one of them.
    """
    for node in document.nodes:
        if node.outputs[0] in names and (found := objection(document, node)):
            raise InvalidInput(f"{node.outputs[0]} is {found[0]}", hint=found[1])


def objection(document: Document, node: Node) -> tuple[str, str] | None:
    """What an operator is that is none of `BFLOAT16_PRODUCTS`, or depthwise: pairs of its products belong to two
    channels, so that it is faster in float32. And what to do about it."""
    if node.op_type not in BFLOAT16_PRODUCTS:
        return f"made by {node.op_type}, which has no bfloat16", f"{', '.join(BFLOAT16_PRODUCTS)} do"
    if _is_depthwise(document, node):
        return "depthwise, where bfloat16 gains nothing", "leave it in float"
    return None


def narrow(document: Document, names: Collection[str]) -> None:
    """Rounds both operands of the operators that make these tensors, which `document` has in float: constants before
    they are stored, others when the model runs."""
    rounds: dict[str, str] = {}  # of a tensor that was seen, what it is rounded to
    made: list[Node] = []
    for node in document.nodes:
        if node.outputs[0] in names:
            for name in node.inputs[:_OPERANDS]:
                if name not in rounds:
                    rounds[name] = _rounded(document, name, made)
            node = renamed(node, {place: rounds[name] for place, name in enumerate(node.inputs[:_OPERANDS])})
        made.append(node)
    document.nodes = made


def _rounded(document: Document, name: str, made: list[Node]) -> str:
    if name in document.constants:
        narrowed = document.add_constant(f"{name}_bfloat16", rounded(document.constants[name]), BFLOAT16)
    else:
        narrowed = document.new_name(f"{name}_bfloat16")
        made.append(Node.made("Cast", (name,), narrowed, to=encoding.DTYPES[BFLOAT16]))
    widened = document.new_name(f"{name}_rounded")
    made.append(Node.made("Cast", (narrowed,), widened, to=encoding.DTYPES["float32"]))
    return widened


def _is_depthwise(document: Document, node: Node) -> bool:
    weights = document.constants.get(node.inputs[1])
    return node.attributes.get("group", 1) != 1 and weights is not None and weights.shape[1] == 1
