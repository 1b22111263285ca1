"""Reads an ONNX file into a `Model`, and checks what the format promises."""

from __future__ import annotations

import numpy as np

from service.compiler.importers.onnx.graph import check_graph
from service.compiler.importers.onnx.message import Values, read_message
from service.compiler.importers.onnx.metadata import KEY
from service.compiler.importers.onnx.model import (
    OWN_DOMAIN,
    AttributeValue,
    End,
    Model,
    Tensor,
    Unread,
    shortened,
)
from service.compiler.importers.onnx.package import Files, unpack
from service.compiler.importers.onnx.schema import ATTRIBUTE_FIELDS, DTYPES
from service.compiler.importers.onnx.tensors import read_tensor, text
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported

OPSETS = range(10, 26)
_OWN_DOMAINS = ("", "ai.onnx")
_SAME = ("DequantizeLinear", "QuantizeLinear")  # com.microsoft has them for 4 and 16 bits in older operator sets


def read_model(data: bytes) -> Model:
    """The model in an ONNX file, or in an archive of one and the files that its weights are in.

    Takes time and memory in proportion to the file: constants are views of it where it has them raw.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported: it is of an operator set that is not read, or computes nothing.
    """
    file, files = unpack(data)
    message = read_message(memoryview(file))
    opset = _opset(message)
    if "graph" not in message:
        raise MalformedModel("the file has no graph")
    if "functions" in message:
        raise Unsupported(
            "the model defines functions of its own", hint="export it with its functions inlined (onnx.inliner)"
        )
    graph = message["graph"]
    if "sparse_initializer" in graph:
        raise Unsupported("the model has sparse constants", hint="export it with dense ones")
    model = _model(graph, opset, len(data), files, _said(message))
    check_graph(model)
    return model


def _opset(message: Values) -> int:
    versions = {text(entry.get("domain")): entry.get("version", 0) for entry in message.get("opset_import", ())}
    opset = next((int(versions[domain]) for domain in _OWN_DOMAINS if domain in versions), None)
    if opset is None:
        raise MalformedModel("the file does not say which operator set it uses")
    if opset not in OPSETS:
        raise Unsupported(
            f"the model uses operator set {opset}; {OPSETS.start} to {OPSETS.stop - 1} are read",
            hint="convert it with onnx.version_converter, or export it again",
        )
    return opset


def _said(message: Values) -> str:
    entries = message.get("metadata_props", ())
    return next((text(entry.get("value")) for entry in entries if text(entry.get("key")) == KEY), "")


def _model(graph: Values, opset: int, size_bytes: int, files: Files, said: str) -> Model:
    constants: dict[str, Tensor] = {}
    for values in graph.get("initializer", ()):
        _add(constants, read_tensor(values, files))
    operators = []
    for index, values in enumerate(graph.get("node", ())):
        operator = _operator(values, index, files)
        if operator.op_type == "Constant" and len(operator.outputs) == 1:
            _add(constants, _constant(operator))
        else:
            operators.append(operator)
    inputs = tuple(_end(values) for values in graph.get("input", ()))
    return Model(
        opset=opset,
        operators=tuple(operators),
        constants=constants,
        # Before IR version 4, constants were listed as inputs too: defaults that a caller might replace.
        inputs=tuple(end for end in inputs if end.name not in constants),
        outputs=tuple(_end(values) for values in graph.get("output", ())),
        size_bytes=size_bytes,
        said=said,
    )


def _add(constants: dict[str, Tensor], tensor: Tensor) -> None:
    if not tensor.name:
        raise MalformedModel("a constant has no name")
    if tensor.name in constants:
        raise MalformedModel(f"two constants are called {shortened(tensor.name)}", tensor=shortened(tensor.name))
    constants[tensor.name] = tensor


def _operator(values: Values, index: int, files: Files) -> Operator:
    domain, op_type = text(values.get("domain")), text(values.get("op_type"))
    if domain == OWN_DOMAIN:
        raise MalformedModel(f"operator #{index} is of the domain {OWN_DOMAIN}, which no file may use")
    own = domain in _OWN_DOMAINS or (domain == "com.microsoft" and op_type in _SAME)
    name = shortened(op_type if own else f"{domain}.{op_type}")
    attributes: dict[str, AttributeValue] = {}
    for attribute in values.get("attribute", ()):
        key = text(attribute.get("name"))
        if key in attributes:
            raise MalformedModel(f"{name} #{index} has its attribute {shortened(key)} twice", op=f"{name} #{index}")
        attributes[key] = _attribute(attribute, files)
    return Operator(
        index,
        name,
        tuple(text(raw) for raw in values.get("input", ())),
        tuple(text(raw) for raw in values.get("output", ())),
        attributes,
    )


def _attribute(values: Values, files: Files) -> AttributeValue:
    """By its declared type. Old files leave that out, and have one value."""
    for what in ("g", "graphs", "sparse_tensor", "ref_attr_name"):
        if what in values:
            return Unread(what)
    field = ATTRIBUTE_FIELDS.get(values.get("type", 0)) or next(
        (name for name in ATTRIBUTE_FIELDS.values() if name in values), ""
    )
    match field:
        case "i":
            return int(values.get("i", 0))
        case "f":
            return float(values.get("f", 0.0))
        case "s":
            return text(values.get("s"))
        case "t":
            return read_tensor(values.get("t", {}), files, "")
        case "ints":
            return tuple(int(value) for value in values.get("ints", ()))
        case "floats":
            return tuple(float(value) for value in values.get("floats", ()))
        case "strings":
            return tuple(text(raw) for raw in values.get("strings", ()))
        case _:
            return Unread(f"type {values.get('type', 0)}")


def _constant(operator: Operator) -> Tensor:
    """The value of a `Constant` operator, under the name of its output."""
    name, attributes = operator.outputs[0], operator.attributes
    match attributes:
        case {"value": Tensor() as tensor}:
            return Tensor(name, tensor.dtype, tensor.shape, tensor.data, tensor.oddity)
        case {"value_int": int() as number}:
            return _numbers(name, "int64", number)
        case {"value_float": float() as number}:
            return _numbers(name, "float32", number)
        case {"value_ints": tuple() as row}:
            return _numbers(name, "int64", row)
        case {"value_floats": tuple() as row}:
            return _numbers(name, "float32", row)
    return Tensor(name, "unknown", (), oddity="is neither a tensor nor numbers")


def _numbers(name: str, dtype: str, value: object) -> Tensor:
    data = np.array(value, dtype)
    return Tensor(name, dtype, data.shape, data)


def _end(values: Values) -> End:
    name, type_ = text(values.get("name")), values.get("type", {})
    if "tensor_type" not in type_:
        raise Unsupported(f"{shortened(name)} is not a tensor", tensor=shortened(name))
    tensor = type_["tensor_type"]
    number = tensor.get("elem_type", 0)
    shape = None
    if "shape" in tensor:
        shape = tuple(
            int(dim["dim_value"]) if "dim_value" in dim else text(dim["dim_param"]) if "dim_param" in dim else None
            for dim in tensor["shape"].get("dim", ())
        )
    return End(name, DTYPES.get(number, f"type {number}"), shape)
