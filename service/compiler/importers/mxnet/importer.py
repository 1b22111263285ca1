"""Imports an archive of a symbol and its parameters as a QNN module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tvm import relax

from service.compiler.importers.builder.module import (
    At,
    Shapes,
    build_main,
    check_names,
    count_types,
    import_stage,
    param,
    unsupported_operators,
)
from service.compiler.importers.detect import MXNET
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.mxnet.node import Node, Tensor, Value
from service.compiler.importers.mxnet.operators import RULES
from service.compiler.importers.mxnet.package import SHAPE_ATTRIBUTE, unpack
from service.compiler.importers.mxnet.params import read_params
from service.compiler.importers.mxnet.symbol import VARIABLE, Entry, Symbol, SymbolNode, read_symbol
from service.compiler.importers.names import join_names, printable
from service.compiler.importers.onnx.standard import Standard
from service.core.errors import MalformedModel, NotQuantized, Unsupported
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec, datatype_of

_MOST_ELEMENTS = 1 << 31
_FLOAT32 = "0"  # mshadow's type flag of float32
_DTYPE_ATTRIBUTE = "__dtype__"


def import_model(data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None) -> ImportedModel:
    """Imports the model in an archive of a symbol and its parameters.

    Args:
        data: the file. Constants are copied into the module.
        at: called with every operator, and the name of its output, before the operator is converted.
        shapes: input name -> shape, for inputs whose shape the symbol does not contain; "" means the only input.

    Raises:
        MalformedModel: the file is not well formed, or an operator's definition is invalid.
        Unsupported, UnsupportedOperator: the model is well formed, but a part of it cannot be compiled.
    """
    with import_stage():
        symbol, params = unpack(data)
        return _imported(read_symbol(symbol), read_params(params), at, shapes or {}, len(data))


def _imported(symbol: Symbol, params: Mapping[str, Array], at: At, shapes: Shapes, size_bytes: int) -> ImportedModel:
    check_support(symbol.nodes)
    labels = _labels(symbol.nodes)
    inputs = [
        node for node in symbol.nodes if node.op == VARIABLE and node.name not in params and node.index not in labels
    ]
    if not inputs:
        raise Unsupported("the model has no inputs")
    check_names(shapes, [node.name for node in inputs], Unsupported)
    specs = [_input_spec(node, tuple(shapes.get(node.name) or shapes.get("") or ())) for node in inputs]
    values: dict[Entry, Value] = {
        (node.index, 0): params[node.name] for node in symbol.nodes if node.op == VARIABLE and node.name in params
    }
    variables = [param(f"input_{index}", spec.shape, "float32") for index, spec in enumerate(specs)]
    given = [Tensor(each) for each in variables]
    values |= {(node.index, 0): value for node, value in zip(inputs, given, strict=True)}
    builder = relax.BlockBuilder()
    standard = Standard(builder, size_bytes)

    def convert() -> list[relax.Expr]:
        for node in symbol.nodes:
            if node.op != VARIABLE:
                at(node.label, node.name)
                made = RULES[node.op](Node(node, values, builder, standard))
                values.update({(node.index, position): value for position, value in enumerate(made)})
        return [_head(symbol, entry, values, given).expr for entry in symbol.heads]

    outputs = build_main(builder, variables, convert)
    # the names that MXNet gives to outputs (`Symbol.list_outputs`)
    named = [f"{printable(symbol.nodes[index].name)}_output" for index, _ in symbol.heads]
    results = [
        TensorSpec(name, datatype_of(str(output.ty.dtype)), Tensor(output).shape)
        for name, output in zip(named, outputs, strict=True)
    ]
    return ImportedModel(builder.get(), ModelSignature(_unique(specs), _unique(results)), MXNET)


def _head(symbol: Symbol, entry: Entry, values: Mapping[Entry, Value], given: Sequence[Tensor]) -> Tensor:
    label, value = symbol.nodes[entry[0]].label, values.get(entry)
    if value is None:
        raise MalformedModel(f"the model's output is output {entry[1]} of {label}, which has fewer", op=label)
    if not isinstance(value, Tensor) or value in given or value.addends is not None:
        raise Unsupported(
            f"the model's output is output {entry[1]} of {label}, which is not a computed tensor", op=label
        )
    return value


def _labels(nodes: Sequence[SymbolNode]) -> set[int]:
    """Returns the variables that only a `SoftmaxOutput` reads, as labels. Labels are used in training only."""
    readers: dict[int, set[bool]] = {}
    for node in nodes:
        for position, (index, _) in enumerate(node.inputs):
            readers.setdefault(index, set()).add(node.op == "SoftmaxOutput" and position == 1)
    return {index for index, are_labels in readers.items() if are_labels == {True}}


def check_support(nodes: Sequence[SymbolNode]) -> None:
    """Checks that every operator can be converted.

    Raises:
        NotQuantized: some operators cannot be converted, and none of the model's operators is quantized.
        UnsupportedOperator: some operators cannot be converted.
    """
    operators = [node for node in nodes if node.op != VARIABLE]
    if not operators:
        raise Unsupported("the model has no operators")
    obstacles = [node for node in operators if node.op not in RULES]
    if not obstacles:
        return
    op, tensor = obstacles[0].label, printable(obstacles[0].name)
    types = [printable(node.op) for node in obstacles]
    if not any("quantize" in node.op or node.attributes.flag("quantized") for node in operators):
        what = f"none of its {len(operators)} operators is quantized ({count_types(types)})"
        hint = "quantize it with mxnet.contrib.quantization.quantize_model_mkldnn"
        raise NotQuantized(f"this model is not quantized: {what}", op=op, tensor=tensor, hint=hint)
    hint = f"cut the symbol before it: symbol.get_internals()[name], without {printable(obstacles[0].name)}"
    each = [(what, node.label) for what, node in zip(types, obstacles, strict=True)]
    raise unsupported_operators(each, len(operators), op, tensor, hint)


def _input_spec(node: SymbolNode, given: tuple[int, ...]) -> TensorSpec:
    shape = given or node.attributes.integers(SHAPE_ATTRIBUTE, least=-1)
    name = printable(node.name)
    if not shape or any(size < 1 for size in shape):
        raise Unsupported(
            f"the input {name} has no fixed shape, because MXNet's files do not store it"
            + (f", and this one stores {list(shape)}" if shape else ""),
            tensor=name,
            hint=f"give it: --input-shape {name}=1,3,224,224",
        )
    if len(shape) > 8 or math.prod(shape) > _MOST_ELEMENTS:
        raise Unsupported(f"the input {name} has the shape {list(shape)}, which is too large", tensor=name)
    if node.attributes.text(_DTYPE_ATTRIBUTE, _FLOAT32) not in (_FLOAT32, "-1"):
        raise Unsupported(f"the input {name} is not float32", tensor=name)
    return TensorSpec(name, datatype_of("float32"), shape)


def _unique(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise MalformedModel(f"two inputs or two outputs have the same name: {join_names(names)}")
    return tuple(specs)
