"""Imports an archive of a graph and its weights as a QNN module."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.builder.fixing import Declared, check_inputs, elements_of, fixed_inputs
from service.compiler.importers.builder.module import (
    At,
    Shapes,
    agreed_shape,
    build_main,
    import_stage,
    param,
    unique_specs,
    unsupported_operators,
)
from service.compiler.importers.detect import OPENVINO
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.names import printable
from service.compiler.importers.onnx.standard import Standard
from service.compiler.importers.openvino.file.package import unpack
from service.compiler.importers.openvino.file.reader import read_model
from service.compiler.importers.openvino.file.weights import DTYPES, read_constant
from service.compiler.importers.openvino.model import CONSTANT, PARAMETER, RESULT, Layer, Model
from service.compiler.importers.openvino.node import Node, State
from service.compiler.importers.openvino.operators import RULES
from service.compiler.importers.openvino.operators.sums import readers_of
from service.compiler.qnn.graph import shape_of
from service.core.builds.fixed import Fixed
from service.core.errors import MalformedModel, Unsupported
from service.core.models.signature import DATATYPES, ModelSignature

_OPEN = ("?", "-1")
_SENDABLE = frozenset(DATATYPES.values())


def import_model(
    data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None, fixed: Fixed | None = None
) -> ImportedModel:
    """Imports the model in an archive of a graph and its weights. A batch size that the file leaves open becomes 1.

    Args:
        data: the file. Constants are copied into the module.
        at: called with every layer, and the name of its output, before the layer is converted.
        shapes: input name -> shape, for inputs with dimensions that the file leaves open; "" means the only input.
        fixed: input name -> the elements of an input that becomes a constant.

    Raises:
        MalformedModel: the file is not well formed, or a layer's definition is invalid.
        Unsupported, UnsupportedOperator: the model is well formed, but a part of it cannot be compiled.
    """
    with import_stage():
        graph, weights = unpack(data)
        return _imported(read_model(graph), memoryview(weights), at, shapes or {}, fixed or {}, len(data))


def _imported(
    model: Model, weights: memoryview, at: At, shapes: Shapes, fixed: Fixed, size_bytes: int
) -> ImportedModel:
    # OpenVINO's order of inputs and outputs is that of the file
    written = sorted(model.layers, key=lambda layer: layer.index)
    inputs, results = ([layer for layer in written if layer.type == each] for each in (PARAMETER, RESULT))
    if not inputs:
        raise Unsupported("the model has no inputs", hint="export it with an input")
    if not results:
        raise MalformedModel("the graph has no results, so the model has no outputs")
    _check_support(model.layers)
    names = [_input_name(layer) for layer in inputs]
    check_inputs(names, shapes, fixed)
    ends = [_declared(layer, name) for layer, name in zip(inputs, names, strict=True)]
    constants = fixed_inputs(ends, shapes, fixed)
    open_inputs = [(layer, end) for layer, end in zip(inputs, ends, strict=True) if end.name not in fixed]
    params = [_param(index, end, shapes) for index, (_, end) in enumerate(open_inputs)]
    builder = relax.BlockBuilder()
    by_id, readers = {layer.id: layer for layer in model.layers}, readers_of(model.layers)
    state = State(builder, Standard(builder, size_bytes), layers=by_id, readers=readers)
    state.values |= {(layer.id, 0): each for (layer, _), each in zip(open_inputs, params, strict=True)}
    state.values |= {(inputs[each.index].id, 0): elements_of(each) for each in constants}

    def convert() -> list[relax.Expr]:
        for layer in model.layers:
            if layer.type == CONSTANT:
                state.values[layer.id, 0] = read_constant(layer, weights)
            elif layer.type not in (PARAMETER, RESULT):
                at(layer.label, printable(layer.name))
                made = RULES[layer.type](Node(state, layer))
                state.values |= {(layer.id, index): value for index, value in enumerate(made)}
        return [_result(state, layer) for layer in results]

    outputs = build_main(builder, params, convert)
    result_names = [_output_name(by_id, layer) for layer in results]
    signature = ModelSignature(
        unique_specs(
            (
                (end.name, str(each.ty.dtype), shape_of(each), None)
                for (_, end), each in zip(open_inputs, params, strict=True)
            ),
            "input",
        ),
        unique_specs(
            (
                (name, str(each.ty.dtype), shape_of(each), None)
                for name, each in zip(result_names, outputs, strict=True)
            ),
            "output",
        ),
        fixed=constants,
    )
    return ImportedModel(builder.get(), signature, OPENVINO)


def _check_support(layers: Sequence[Layer]) -> None:
    """Raises `UnsupportedOperator` if a layer cannot be converted. Lists all such layers."""
    obstacles = [
        layer for layer in layers if layer.type not in (PARAMETER, RESULT, CONSTANT) and layer.type not in RULES
    ]
    if obstacles:
        first = obstacles[0]
        each = [(printable(layer.type), layer.label) for layer in obstacles]
        hint = "cut the model before it, or export it without it"
        raise unsupported_operators(each, len(layers), first.label, printable(first.name), hint)


def _declared(layer: Layer, name: str) -> Declared:
    kind = layer.attributes.text("element_type", "f32")
    dtype = DTYPES.get(kind)
    if dtype is None or dtype not in _SENDABLE:
        raise Unsupported(f"the input {name} is {kind[:20]!a}, which cannot be compiled", op=layer.label, tensor=name)
    text = layer.attributes.text("shape").strip()
    if text == "...":
        raise Unsupported(
            f"the input {name} has any number of dimensions", tensor=name, hint="fix its shape: model.reshape(…)"
        )
    parts = [part.strip() for part in text.split(",")] if text else []
    declared = [None if part in _OPEN or ".." in part else _size(layer, part) for part in parts]
    return Declared(name, dtype, declared)


def _param(index: int, end: Declared, shapes: Shapes) -> relax.Var:
    shape = agreed_shape(end.name, end.shape or (), shapes.get(end.name, shapes.get("")))
    return param(f"input_{index}", shape, end.dtype)


def _size(layer: Layer, text: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise MalformedModel(f"{layer.label} has the dimension {text[:20]!a}, not a number", op=layer.label)
    return int(text)


def _result(state: State, layer: Layer) -> relax.Expr:
    """Returns an output of the model. An output that the model contains or passes on is copied."""
    node = Node(state, layer)
    node.count(1)
    value = node.real(0)
    if isinstance(value, np.ndarray):
        value = node.literal(value)
    dtype = str(value.ty.dtype)
    node.require_supported(dtype in _SENDABLE, f"returns {dtype}, which cannot be compiled")
    return value


def _input_name(layer: Layer) -> str:
    names = layer.names[0] if layer.names else ()
    return printable(names[0] if names else layer.name)


def _output_name(layers: dict[int, Layer], result: Layer) -> str:
    """Returns the first name of the tensor that a result returns, or else the name of the layer that computes it."""
    number, index = result.inputs[0]
    source = layers[number]
    names = source.names[index] if index < len(source.names) else ()
    return printable(names[0] if names else source.name)
