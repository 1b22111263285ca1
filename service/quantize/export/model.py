"""Converts a float model of any format to a float ONNX file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tvm import relax

from service.compiler.importers import detect
from service.compiler.importers.auto import import_model
from service.compiler.importers.builder.module import At
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.file import encoding, protobuf
from service.compiler.importers.onnx.file.metadata import KEY
from service.compiler.qnn import graph as modules
from service.compiler.qnn.coverage import report
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.patterns import SIMULATED, apply_patterns, matched_form
from service.core.artifacts.floating import FLOAT
from service.core.builds.fixed import Fixed
from service.core.errors import Unsupported
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature, TensorSpec
from service.quantize.export.composite import Composite
from service.quantize.export.composites import composite
from service.quantize.export.definitions import Definitions
from service.quantize.export.graph import Graph
from service.quantize.export.operators import write
from service.quantize.formats import require

_OPSET, _IR_VERSION = 17, 8  # operator set 17 introduced LayerNormalization, together with IR version 8


def as_onnx(
    data: bytes,
    shapes: Mapping[str, Sequence[int]],
    at: At = lambda op, tensor: None,
    fixed: Fixed = MappingProxyType({}),
) -> bytes:
    """Returns an ONNX file that computes the same function as `data`, with the same inputs and outputs. An ONNX file is
    returned unchanged, unless an input becomes a constant, or a dialect replaces some of its operators by their
    simulated forms.

    Args:
        data: a float model of any format.
        shapes: the shapes of the inputs that the file leaves open.
        at: called before each operator is imported, with the operator and its tensor, as in importers.
        fixed: the values of inputs that become constants. The result does not have these inputs.

    Raises:
        OctetError: see `importers.auto.import_model`.
        Unsupported: the model is quantized, has a format that cannot be quantized, or cannot be written as ONNX.
    """
    format_ = detect.format_of(io.BytesIO(data))
    if format_ == detect.ONNX and not SIMULATED and not fixed:
        return data
    require(format_)
    imported = import_model(data, at, shapes, fixed)
    if SIMULATED:
        module, applied = apply_patterns(matched_form(imported.module), tuple(SIMULATED), SIMULATED)
        if not applied and format_ == detect.ONNX and not fixed:
            return data
        imported = replace(imported, module=module)
    return convert_module(imported)


def convert_module(imported: ImportedModel) -> bytes:
    """Returns `imported` as an ONNX file. Raises the errors of `as_onnx`."""
    signature = imported.signature
    if _is_quantized(imported):
        raise Unsupported("this model is quantized already", hint="octet push and octet compile accept it as it is")
    if signature.states:
        raise Unsupported(
            "this model keeps states from call to call, which an ONNX file cannot express",
            hint="quantize it in its framework",
        )
    function = modules.main_of(imported.module)
    definitions = Definitions(function)
    inputs = dict(zip(function.params, (spec.name for spec in signature.inputs), strict=True))
    ends = [definitions.variable(end) for end in modules.results_of(function)]
    named = [(var, spec.name) for var, spec in zip(ends, signature.outputs, strict=True)]
    graph = Graph(inputs, dict(reversed(named)))
    for var, made in _needed(function, definitions, ends):
        if isinstance(made, Composite):
            made.write(graph, var)
        elif isinstance(made, relax.Call):
            write(graph, var, made)
        else:
            graph.alias(var, made)
    graph.finish(named)
    return _file(graph, signature, [shape_of(var) for var in ends], imported.metadata)


def _is_quantized(imported: ImportedModel) -> bool:
    """Returns true if any part of the model is quantized."""
    covered, ends = report(imported.module), (*imported.signature.inputs, *imported.signature.outputs)
    stored = any(spec.quantization is not None for spec in ends)
    return stored or covered["integer_macs"] > 0 or any(each["reason"] != FLOAT for each in covered["floating"])


def _needed(
    function: relax.Function, definitions: Definitions, ends: Sequence[relax.Var]
) -> list[tuple[relax.Var, relax.Expr | Composite]]:
    """Returns the operators that compute the results, sorted. A composite replaces all of its operators."""
    found: list[tuple[relax.Var, relax.Expr | Composite]] = []
    wanted = {*ends}
    for var, value in reversed([*modules.bindings(function)]):
        if var not in wanted:
            continue
        made = composite(definitions, var) or value
        wanted.update([made.x] if isinstance(made, Composite) else modules.variables(made))
        found.append((var, made))
    return found[::-1]


def _file(graph: Graph, signature: ModelSignature, outputs: Sequence[Sequence[int]], metadata: ModelMetadata) -> bytes:
    """Serializes the file. The file contains the source's labels and preprocessing."""
    parts = [protobuf.message(1, node.serialize()) for node in graph.nodes]
    parts.append(protobuf.text(2, "main"))
    for name, values in graph.constants.items():
        parts.append(protobuf.message(5, encoding.tensor(name, values.dtype.name, values)))
    parts += [protobuf.message(11, _end(spec, spec.shape)) for spec in signature.inputs]
    parts += [protobuf.message(12, _end(spec, shape)) for spec, shape in zip(signature.outputs, outputs, strict=True)]
    sets = {"": _OPSET} | dict.fromkeys(graph.domains, 1)
    opset = b"".join(protobuf.message(8, protobuf.text(1, name) + protobuf.number(2, of)) for name, of in sets.items())
    versions = protobuf.number(1, _IR_VERSION) + protobuf.text(2, "octet")
    properties = protobuf.message(14, protobuf.text(1, KEY) + protobuf.text(2, metadata.to_text())) if metadata else b""
    return versions + protobuf.message(7, b"".join(parts)) + opset + properties


def _end(spec: TensorSpec, shape: Sequence[int]) -> bytes:
    return encoding.value_info(spec.name, spec.dtype.name, shape)
