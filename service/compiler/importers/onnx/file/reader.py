"""Reads an ONNX file into a `Model`, and checks what the format guarantees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.file.branches import WITH_SUBGRAPHS, branch_of, with_captures, with_names
from service.compiler.importers.onnx.file.functions import ONNX_DOMAINS, SCOPE, Functions, Scope
from service.compiler.importers.onnx.file.graph import check_graph
from service.compiler.importers.onnx.file.message import Values, read_message
from service.compiler.importers.onnx.file.metadata import KEY
from service.compiler.importers.onnx.file.older import modern
from service.compiler.importers.onnx.file.order import in_order
from service.compiler.importers.onnx.file.package import Files, unpack
from service.compiler.importers.onnx.file.schema import ATTRIBUTE_FIELDS, DTYPES
from service.compiler.importers.onnx.file.tensors import read_sparse, read_tensor, text
from service.compiler.importers.onnx.file.wire import Budget
from service.compiler.importers.onnx.model import (
    OWN_DOMAIN,
    AttributeValue,
    Branch,
    End,
    Model,
    Tensor,
    Unread,
)
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported

OPSETS = range(1, 27)
# in older operator sets, com.microsoft has these operators for 4 and 16 bits
_SAME = ("DequantizeLinear", "QuantizeLinear")
_DEEPEST = 16  # nesting of Ifs


@dataclass(frozen=True)
class _File:
    """The parts of a file that are needed to read any graph in it.

    Attributes:
        functions: the model's functions.
        files: the files that may contain external data.
        budget: the number of fields that may still be read. Subgraphs share this budget with the file that contains
            them.
        size_bytes: the size of the file.
    """

    opset: int
    functions: Functions
    files: Files
    budget: Budget
    size_bytes: int


def read_model(data: bytes) -> Model:
    """Returns the model in an ONNX file, or in an archive of a model and the files with its weights. Functions are
    inlined, and operators are sorted.

    Time and memory are proportional to the size of the file. Constants that are stored as raw bytes are views of the
    file.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported: the file's operator set is not supported, or the model computes nothing.
    """
    content, files = unpack(data)
    budget = Budget()
    message = read_message(memoryview(content), budget=budget)
    opset = _opset(message)
    if "graph" not in message:
        raise MalformedModel("the file has no graph")
    file = _File(opset, Functions(message, opset), files, budget, len(content))
    model = _model(message["graph"], file, len(data), _metadata_text(message))
    check_graph(model)
    return model


def _opset(message: Values) -> int:
    """Returns the version of ONNX's own operators. If the file has several entries for this version, the last entry
    counts. A file with entries only for other domains has the latest version, as in ONNX Runtime (core/graph/model.cc).
    """
    entries = message.get("opset_import", ())
    if not entries:
        raise MalformedModel("the file has no operator set (opset_import)")
    versions = [int(entry.get("version", 0)) for entry in entries if text(entry.get("domain")) in ONNX_DOMAINS]
    opset = versions[-1] if versions else OPSETS.stop - 1
    if opset not in OPSETS:
        raise Unsupported(
            f"the model uses operator set {opset}; only {OPSETS.start} to {OPSETS.stop - 1} are supported",
            hint="convert it with onnx.version_converter, or export it again",
        )
    return opset


def _metadata_text(message: Values) -> str:
    entries = message.get("metadata_props", ())
    return next((text(entry.get("value")) for entry in entries if text(entry.get("key")) == KEY), "")


def _model(graph: Values, file: _File, size_bytes: int, metadata_text: str) -> Model:
    operators, constants = _contents(graph, file, 0)
    inputs = tuple(_end(values) for values in graph.get("input", ()))
    return Model(
        opset=file.opset,
        operators=in_order(operators),
        constants=constants,
        # Before IR version 4, constants were also listed as inputs: they were defaults that a caller could replace.
        inputs=tuple(end for end in inputs if end.name not in constants),
        outputs=tuple(_end(values) for values in graph.get("output", ())),
        size_bytes=size_bytes,
        metadata_text=metadata_text,
    )


def _contents(graph: Values, file: _File, depth: int) -> tuple[tuple[Operator, ...], dict[str, Tensor]]:
    """Returns the operators of a graph, in the file's order, and its constants by name. If several constants have the
    same name, the last constant counts; a `Constant` operator takes precedence over them, as in ONNX Runtime.
    """
    constants: dict[str, Tensor] = {}
    for values in graph.get("initializer", ()):
        tensor = read_tensor(values, file.files)
        constants[tensor.name] = tensor
    for values in graph.get("sparse_initializer", ()):
        tensor = read_sparse(values, file.files, file.size_bytes)
        constants[tensor.name] = tensor
    constants.pop("", None)  # nothing can read a constant whose name is empty
    operators, computed = [], set[str]()
    for index, values in enumerate(file.functions.inlined(graph.get("node", ()))):
        operator = modern(_operator(values, index, file, depth), file.opset, constants)
        if operator.op_type == "Constant" and len(operator.outputs) == 1:
            (name,) = operator.outputs
            if name in computed:
                raise MalformedModel(f"two operators compute {shortened(name)}", tensor=shortened(name))
            computed.add(name)
            constants[name] = _constant(operator)
        else:
            operators.append(operator)
    return tuple(operators), constants


def _operator(values: Values, index: int, file: _File, depth: int) -> Operator:
    domain, op_type = text(values.get("domain")), text(values.get("op_type"))
    if domain == OWN_DOMAIN:
        raise MalformedModel(f"operator #{index} has the domain {OWN_DOMAIN}, which files must not use")
    own = domain in ONNX_DOMAINS or (domain == "com.microsoft" and op_type in _SAME)
    name = shortened(op_type if own else f"{domain}.{op_type}")
    attributes: dict[str, AttributeValue] = {}
    for attribute in values.get("attribute", ()):
        key = text(attribute.get("name"))
        if key in attributes:
            raise MalformedModel(f"{name} #{index} has the attribute {shortened(key)} twice", op=f"{name} #{index}")
        if name in WITH_SUBGRAPHS and "g" in attribute:
            attributes[key] = _branch(attribute, f"{name} #{index}", file, depth + 1)
        else:
            attributes[key] = _attribute(attribute, file)
    operator = Operator(
        index,
        name,
        tuple(text(raw) for raw in values.get("input", ())),
        tuple(text(raw) for raw in values.get("output", ())),
        attributes,
        written=name,
    )
    return with_captures(operator) if name in WITH_SUBGRAPHS else operator


def _branch(attribute: Values, label: str, file: _File, depth: int) -> Branch:
    if depth > _DEEPEST:
        raise Unsupported(f"the model has subgraphs that are nested more than {_DEEPEST} levels deep", op=label)
    graph = read_message(attribute["g"], "Graph", label, file.budget)
    scope: Scope | None = attribute.get(SCOPE)
    if scope is not None:
        inner = replace(scope, is_nested=True)
        graph = {**graph, "node": [inner.bound(node) for node in graph.get("node", ())]}
    operators, constants = _contents(graph, file, depth)
    outputs, inputs = ([text(end.get("name")) for end in graph.get(each, ())] for each in ("output", "input"))
    branch = branch_of(operators, constants, outputs, (name for name in inputs if name not in constants))
    if scope is None or scope.is_nested:
        return branch
    return with_names(branch, {name: scope.renamed(name) for name in branch.captures})


def _attribute(values: Values, file: _File) -> AttributeValue:
    """Reads an attribute by its declared type. Old files do not declare the type; the attribute then has a single
    value.
    """
    for what in ("g", "graphs", "ref_attr_name"):
        if what in values:
            return Unread(what)
    if "sparse_tensor" in values:
        return read_sparse(values["sparse_tensor"], file.files, file.size_bytes)
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
            return read_tensor(values.get("t", {}), file.files, "")
        case "ints":
            return tuple(int(value) for value in values.get("ints", ()))
        case "floats":
            return tuple(float(value) for value in values.get("floats", ()))
        case "strings":
            return tuple(text(raw) for raw in values.get("strings", ()))
        case _:
            return Unread(f"type {values.get('type', 0)}")


def _constant(operator: Operator) -> Tensor:
    """Returns the value of a `Constant` operator, under the name of its output."""
    name, attributes = operator.outputs[0], operator.attributes
    match attributes:
        case {"value": Tensor() as tensor} | {"sparse_value": Tensor() as tensor}:
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
    if type_.keys() - {"tensor_type"}:
        raise Unsupported(f"{shortened(name)} is not a tensor", tensor=shortened(name))
    if "tensor_type" not in type_:
        return End(name, "", None)
    tensor = type_["tensor_type"]
    number = tensor.get("elem_type", 0)
    shape = None
    if "shape" in tensor:
        shape = tuple(_size(dim) for dim in tensor["shape"].get("dim", ()))
    return End(name, DTYPES.get(number, f"type {number}"), shape)


def _size(dim: Values) -> int | str | None:
    """Returns a dimension. Some exporters write -1 for an open dimension, and ONNX Runtime accepts that."""
    if "dim_value" in dim:
        size = int(dim["dim_value"])
        return size if size >= 0 else None
    return text(dim["dim_param"]) if "dim_param" in dim else None
