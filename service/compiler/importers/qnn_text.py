"""The importer of QNN graphs as text (`qnn.printer.complete_text_of`), written or changed by hand."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from service.compiler.importers import detect
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.names import printable, unique
from service.compiler.qnn import graph
from service.compiler.qnn.parser import InvalidText, parse_module
from service.core.errors import MalformedModel, Unsupported
from service.core.models.signature import ModelSignature, TensorSpec, datatype_of


def import_model(data: bytes, at: Callable[[str, str], None]) -> ImportedModel:
    """Imports the text of a graph. The names of parameters and results become those of inputs and outputs.

    Raises:
        MalformedModel: the text is not UTF-8 or cannot be parsed. The message names the line.
        Unsupported: an input or output has an element type that no client can send.
    """
    try:
        module = parse_module(data.decode())
    except (InvalidText, UnicodeDecodeError) as error:
        raise MalformedModel(str(error)) from error
    function = graph.main_of(module)
    inputs, outputs = _specs(function.params), _specs(graph.results_of(function))
    if not inputs:
        raise Unsupported("the graph has no inputs")
    return ImportedModel(module, ModelSignature(inputs, outputs), detect.QNN)


def _specs(variables: list[relax.Var]) -> tuple[TensorSpec, ...]:
    specs: dict[str, TensorSpec] = {}
    for var in variables:
        name = unique(printable(var.name), specs)
        if not isinstance(var.ty, tvm.relax.TensorType):
            raise Unsupported(f"{name} is not a tensor", tensor=name)
        try:
            datatype = datatype_of(str(var.ty.dtype))
        except KeyError as error:
            raise Unsupported(f"clients cannot send or receive {var.ty.dtype}", tensor=name) from error
        specs[name] = TensorSpec(name, datatype, tuple(int(dim) for dim in var.ty.shape))
    return tuple(specs.values())
