"""An ONNX file that can be edited. Everything else is written exactly as it was read, including unknown fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from service.compiler.importers.onnx.file import encoding, protobuf
from service.compiler.importers.onnx.file.branches import IF
from service.compiler.importers.onnx.file.package import unpack
from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.file.tensors import text
from service.compiler.importers.onnx.file.wire import Budget, Field, Wire, fields
from service.compiler.importers.onnx.model import AttributeValue, Tensor
from service.core.errors import Unsupported
from service.core.models.arrays import Array

# Fields of ModelProto, GraphProto and NodeProto (onnx.proto).
_GRAPH, _OPERATOR_SET, _FUNCTION = 7, 8, 25
_NODE, _INITIALIZER, _INPUT, _OUTPUT = 1, 5, 11, 12
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_DOMAIN = 1, 2, 3, 7


@dataclass(frozen=True, eq=False)
class Node:
    """An operator.

    Attributes:
        op_type: the operator's type. Its domain is a prefix unless the domain is ONNX's own, as in
            `importers.onnx.model`.
        rest: the serialized fields of the node, without inputs and outputs.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]
    rest: bytes

    @staticmethod
    def create(
        op_type: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: encoding.Attribute
    ) -> Node:
        """Creates an operator whose name is that of its output."""
        encoded = (protobuf.message(5, encoding.attribute(name, value)) for name, value in attributes.items())
        rest = protobuf.text(_NODE_NAME, f"{output}_{op_type}") + protobuf.text(4, op_type) + b"".join(encoded)
        rest += protobuf.text(_NODE_DOMAIN, domain) if domain else b""
        return Node(f"{domain}.{op_type}" if domain else op_type, tuple(inputs), (output,), dict(attributes), rest)

    @property
    def label(self) -> str:
        """The operator as reports name it: `Conv → features`."""
        return f"{self.op_type} → {next(filter(None, self.outputs), 'nothing')}"

    def serialize(self) -> bytes:
        ends = [*((_NODE_INPUT, name) for name in self.inputs), *((_NODE_OUTPUT, name) for name in self.outputs)]
        return b"".join(protobuf.text(field, name) for field, name in ends) + self.rest


class Document:
    """The main graph of an ONNX file.

    Attributes:
        opset: the version of the operator set of ONNX's own domain.
        nodes: sorted, so that each comes after those whose outputs it reads.
        constants: the constants by name. Constants whose elements could not be read are not included.
        inputs, outputs: the names of the model's inputs and outputs.
        floats: the names of the float32 inputs.
    """

    def __init__(self, data: bytes) -> None:
        """
        Args:
            data: an ONNX file, or an archive of one and the files with its weights.

        Raises:
            MalformedModel, Unsupported: see `importers.onnx.file.reader.read_model`.
        """
        model = read_model(data)
        if any("\\x" in name for operator in model.operators for name in (*operator.inputs, *operator.outputs)):
            raise Unsupported("a tensor's name is not UTF-8, or has a backslash", hint="rename the model's tensors")
        self.opset = model.opset
        self._model = list(fields(memoryview(unpack(data)[0]), "Model", Budget()))
        if any(field.number == _FUNCTION for field in self._model):
            raise Unsupported("the model has functions", hint="inline them (onnx.inliner) before quantizing it")
        chosen = next((each.label for each in model.operators if each.op_type == IF), None)
        if chosen is not None:
            raise Unsupported(
                f"the model has a subgraph, in {chosen}", hint="fold it (onnxsim, or onnxruntime) before quantizing it"
            )
        graph = next(field for field in self._model if field.number == _GRAPH)
        assert isinstance(graph.value, memoryview)
        within = list(fields(graph.value, "Model.graph", Budget()))
        self._rest = [field for field in within if field.number not in (_NODE, _INITIALIZER, _INPUT, _OUTPUT)]
        self._inputs = {_name(field, 1): field for field in within if field.number == _INPUT}
        self._outputs = {_name(field, 1): field for field in within if field.number == _OUTPUT}
        self._initializers = {_name(field, 8): field for field in within if field.number == _INITIALIZER}
        in_file = [field for field in within if field.number == _NODE]
        self.nodes = [
            Node(each.op_type, each.inputs, each.outputs, each.attributes, _rest(in_file[each.index]))
            for each in model.operators
        ]
        self._tensors = dict(model.constants)
        self.constants: dict[str, Array] = {
            name: tensor.data for name, tensor in self._tensors.items() if tensor.data is not None
        }
        self.inputs = tuple(end.name for end in model.inputs)
        self.floats = tuple(end.name for end in model.inputs if end.dtype == "float32")
        self.outputs = tuple(end.name for end in model.outputs)
        self._names = {*self._tensors, *self._inputs, *(name for node in self.nodes for name in node.outputs)}

    def new_name(self, stem: str) -> str:
        """Returns a name that no tensor has yet, and reserves it."""
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def add_constant(self, stem: str, values: Array, dtype: str | None = None) -> str:
        """Adds a constant in the same way as `set_constant`, under a new name. Returns the name."""
        name = self.new_name(stem)
        self.set_constant(name, values, dtype)
        return name

    def set_constant(self, name: str, values: Array, dtype: str | None = None) -> None:
        """Makes `name` a constant. No operator may produce a tensor of that name.

        Args:
            dtype: the type in the file, if it differs from that of `values`. (bfloat16 is passed as float32, see
                `Tensor.data`.)
        """
        self.constants[name] = np.array(values, order="C")  # scalars stay 0-d arrays
        self._tensors[name] = Tensor(name, dtype or values.dtype.name, values.shape, self.constants[name])

    def add_input(self, name: str, shape: Sequence[int]) -> None:
        """Adds a float32 input to the model, after its other inputs."""
        self._inputs[name] = Field(_INPUT, Wire.BYTES, memoryview(encoding.value_info(name, "float32", shape)))
        self._names.add(name)
        self.inputs += (name,)
        self.floats += (name,)

    def use_domain(self, domain: str) -> str:
        """Declares that the file uses operators of `domain`, version 1, unless it already does."""
        declared = (field for field in self._model if field.number == _OPERATOR_SET)
        if domain not in (_name(field, 1) for field in declared):
            content = protobuf.text(1, domain) + protobuf.number(2, 1)
            self._model.append(Field(_OPERATOR_SET, Wire.BYTES, memoryview(content)))
        return domain

    def readers(self) -> dict[str, list[Node]]:
        """Returns, for each tensor, the operators that read it."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in filter(None, dict.fromkeys(node.inputs)):
                found.setdefault(name, []).append(node)
        return found

    def serialize(self, outputs: Iterable[str] | None = None) -> bytes:
        """Serializes the file. If `outputs` is given, these float32 tensors replace the model's outputs.

        Constants that nothing reads are omitted. Constants from external files become part of this file.
        """
        wanted = self.outputs if outputs is None else tuple(outputs)
        read = {name for node in self.nodes for name in node.inputs} | {*wanted}
        graph = [protobuf.encode_fields(self._rest)]
        graph += [protobuf.message(_NODE, node.serialize()) for node in self.nodes]
        graph += [self._initializer(tensor) for name, tensor in self._tensors.items() if name in read]
        kept = (field for name, field in self._inputs.items() if name in self.inputs or name in read)
        graph += [protobuf.encode_fields(kept)]
        graph += [
            protobuf.encode_fields([self._outputs[name]])
            if name in self._outputs
            else protobuf.message(_OUTPUT, encoding.value_info(name, "float32"))
            for name in wanted
        ]
        whole = b"".join(graph)
        return b"".join(
            protobuf.message(_GRAPH, whole) if field.number == _GRAPH else protobuf.encode_fields([field])
            for field in self._model
        )

    def _initializer(self, tensor: Tensor) -> bytes:
        known = self._initializers.get(tensor.name)
        external = known is not None and any(field.number == 13 for field in _within(known))
        if known is not None and not external:
            return protobuf.encode_fields([known])
        if tensor.data is None or tensor.dtype not in encoding.RAW:
            raise Unsupported(f"the constant {tensor.name} of {tensor.dtype} cannot be written", tensor=tensor.name)
        return protobuf.message(_INITIALIZER, encoding.tensor(tensor.name, tensor.dtype, tensor.data))


def rewire(node: Node, inputs: Mapping[int, str] | None = None, output: str | None = None) -> Node:
    """Returns `node` with a new first output, and with the inputs at some indices replaced."""
    operands = list(node.inputs)
    for position, name in (inputs or {}).items():
        operands += [""] * (position + 1 - len(operands))
        operands[position] = name
    outputs = node.outputs if output is None else (output, *node.outputs[1:])
    return replace(node, inputs=tuple(operands), outputs=outputs)


def _within(field: Field) -> list[Field]:
    assert isinstance(field.value, memoryview)
    return list(fields(field.value, "Model.graph", Budget()))


def _name(field: Field, number: int) -> str:
    value: Any = next((part.value for part in _within(field) if part.number == number), None)
    return text(value)


def _rest(field: Field) -> bytes:
    return protobuf.encode_fields(part for part in _within(field) if part.number not in (_NODE_INPUT, _NODE_OUTPUT))
