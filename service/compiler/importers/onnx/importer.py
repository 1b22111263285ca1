"""ONNX file -> QNN module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.detect import ONNX
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.onnx.folding import folded, folds
from service.compiler.importers.onnx.metadata import metadata_of
from service.compiler.importers.onnx.model import End, Model, shortened
from service.compiler.importers.onnx.node import Node, State, Value
from service.compiler.importers.onnx.operators import RULES
from service.compiler.importers.onnx.qdq import fuse
from service.compiler.importers.onnx.reader import read_model
from service.compiler.importers.onnx.rounding import round_products
from service.compiler.importers.onnx.signature import check_sendable, input_shape, signature_of
from service.compiler.importers.onnx.support import check_support
from service.compiler.qnn.graph import shape_of
from service.core.build import Stage
from service.core.errors import InvalidInput, MalformedModel, OctetError, Unsupported

At = Callable[[str, str], None]
Shapes = Mapping[str, Sequence[int]]


def import_model(data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None) -> ImportedModel:
    """The model in an ONNX file. Where the file leaves the batch open, it is 1.

    Args:
        data: the file. Constants are copied into the module.
        at: told of every operator before it is converted, and of its output's name, so that whoever watches can
            name it if this process dies.
        shapes: of inputs by name, whose dimensions the file leaves open; "" stands for the only input.

    Raises:
        MalformedModel: the file is not well formed, or an operator's definition is broken.
        Unsupported, UnsupportedOperator: it is, but holds what we do not compile.
    """
    try:
        model = fuse(round_products(read_model(data)))
        check_support(model)
        return _imported(model, at, shapes or {})
    except OctetError as exc:
        exc.stage = exc.stage or Stage.IMPORT
        raise


def _imported(model: Model, at: At, shapes: Shapes) -> ImportedModel:
    builder = relax.BlockBuilder()
    params = [_param(end, place, shapes) for place, end in enumerate(_named(model.inputs, shapes))]
    values: dict[str, Value] = {end.name: param for end, param in zip(model.inputs, params, strict=True)}
    values |= {name: tensor.data for name, tensor in model.constants.items() if tensor.data is not None}
    state = State(model, builder, values)
    with builder.function("main", params):
        with builder.dataflow():
            for operator in model.operators:
                node = Node(state, operator)
                at(operator.label, node.label)
                convert = RULES[operator.op_type].convert
                values |= _outputs(node, folded(node, convert) if folds(node) else convert(node))
            results = [_result(end, _scalar(state, end)) for end in model.outputs]
            outputs = [builder.emit_output(result) for result in results]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    signature = signature_of(model, map(_described, params), map(_described, outputs), state.types.get)
    return ImportedModel(builder.get(), signature, ONNX, *metadata_of(model.said, signature))


def _outputs(node: Node, made: Value | tuple[Value, ...]) -> dict[str, Value]:
    """The operator's results by name. An operator may leave out outputs that nothing reads, and a rule those that are
    not compiled (None)."""
    if not isinstance(made, tuple):
        return {node.output: made}
    node.require(len(node.operator.outputs) <= len(made), f"has {len(node.operator.outputs)} outputs")
    named = zip(node.operator.outputs, made, strict=False)
    return {name: value for name, value in named if name and value is not None}


def _scalar(state: State, end: End) -> Value:
    """An output; a scalar without the axes that it was kept with."""
    if end.name not in state.values:
        raise Unsupported(f"the output {shortened(end.name)} is not compiled", tensor=shortened(end.name))
    value = state.values[end.name]
    return state.builder.emit(relax.op.reshape(value, ())) if end.name in state.loose else value


def _named(inputs: tuple[End, ...], shapes: Shapes) -> tuple[End, ...]:
    """The inputs, if every shape is that of one of them."""
    known = {end.name for end in inputs} | ({""} if len(inputs) == 1 else set())
    for name in shapes.keys() - known:
        raise InvalidInput(f"the model has no input {name!r}", hint=f"it has: {', '.join(sorted(known - {''}))}")
    return inputs


def _param(end: End, place: int, shapes: Shapes) -> relax.Var:
    shape = input_shape(end, shapes.get(end.name, shapes.get("")))
    return relax.Var(f"input_{place}", relax.TensorType(list(shape), end.dtype))


def _described(value: relax.Expr) -> tuple[tuple[int, ...], str]:
    return shape_of(value), str(value.ty.dtype)


def _result(end: End, value: Value) -> relax.Expr:
    """An output, which has to be what the file says of it."""
    label = shortened(end.name)
    if isinstance(value, np.ndarray):
        raise Unsupported(f"the output {label} does not depend on any input", tensor=label)
    check_sendable(end, "output")
    shape, dtype = _described(value)
    if dtype != end.dtype:
        raise MalformedModel(f"the output {label} is {dtype}, but the file says {end.dtype}", tensor=label)
    said = end.shape if end.shape is not None else (None,) * len(shape)
    if len(said) != len(shape) or any(isinstance(a, int) and a != b for a, b in zip(said, shape, strict=True)):
        raise MalformedModel(f"the output {label} is {list(shape)}, but the file says {list(said)}", tensor=label)
    return value
