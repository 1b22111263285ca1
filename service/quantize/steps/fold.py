"""Simplifies a float model, and plans what is quantized in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.importers.onnx.support import is_quantized
from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.quantize.file.document import Document
from service.quantize.rewrites.folding import tidy
from service.quantize.rewrites.patterns import Plan, plan
from service.quantize.steps.options import Options
from service.quantize.weights.equalizing import equalize
from service.quantize.weights.spreading import spread

Factors = Mapping[str, Array]  # tensor -> the factors of its channels (`weights.spreading`)


@dataclass(frozen=True)
class Folded:
    """A simplified float model, which may be changed, and the plan of its layers."""

    document: Document
    plan: Plan


def fold(model: bytes, options: Options, factors: Factors) -> Folded:
    """Simplifies an ONNX file.

    Raises:
        Unsupported: the model is already quantized.
        InvalidInput: the options contain a name that is not an operator's output.
    """
    document = Document(model)
    if any(is_quantized(node.op_type) for node in document.nodes):
        raise Unsupported("this model is quantized already", hint="octet push and octet compile accept it as it is")
    tidy(document)
    if options.equalize:
        equalize(document)
    spread(document, factors)
    check_names(document, options)
    return Folded(document, plan(document, options.patterns, options.raised))


def check_names(document: Document, options: Options) -> None:
    """Raises `InvalidInput` if the options contain a name that is not an operator's output."""
    unknown = options.raised - {node.outputs[0] for node in document.nodes}
    if unknown:
        raise InvalidInput(
            f"no operator produces {', '.join(sorted(unknown))}", hint="use the names of operators' outputs"
        )
