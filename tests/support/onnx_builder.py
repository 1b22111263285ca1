"""Writes ONNX files field by field. It does not use the `onnx` package, so that the writer is independent of the
readers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

# TensorProto.DataType
DTYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "bfloat16": 16,
    "uint4": 21,
    "int4": 22,
}
Dims = Sequence[int | str | None]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def fixed(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def tensor(name: str, array: np.ndarray[Any, Any]) -> bytes:
    """Returns a TensorProto with raw data."""
    dims = b"".join(number(1, size) for size in array.shape)
    return dims + number(2, DTYPES[array.dtype.name]) + message(8, name) + message(9, array.tobytes())


def attribute(name: str, value: Any) -> bytes:
    """Returns an AttributeProto."""
    head = message(1, name)
    match value:
        case bool() | int():
            return head + number(3, int(value)) + number(20, 2)
        case float():
            return head + fixed(2, value) + number(20, 1)
        case str():
            return head + message(4, value) + number(20, 3)
        case bytes():  # a graph
            return head + message(6, value) + number(20, 5)
        case np.ndarray():
            return head + message(5, tensor("", value)) + number(20, 4)
    if value and all(isinstance(item, str) for item in value):
        return head + b"".join(message(9, item) for item in value) + number(20, 8)
    if value and all(isinstance(item, float) for item in value):
        return head + b"".join(fixed(7, item) for item in value) + number(20, 6)
    return head + b"".join(number(8, item) for item in value) + number(20, 7)


def value_info(name: str, dtype: str, shape: Dims | None) -> bytes:
    """Returns the ValueInfoProto of a tensor. None means an unknown dimension, or an unknown shape."""
    content = number(1, DTYPES[dtype])
    if shape is not None:
        dims = [
            b"" if size is None else message(2, size) if isinstance(size, str) else number(1, size) for size in shape
        ]
        content += message(2, b"".join(message(1, dim) for dim in dims))
    return message(1, name) + message(2, message(1, content))


class OnnxBuilder:
    """Builds an ONNX graph and writes it as a file."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []
        self.inputs: list[bytes] = []
        self.outputs: list[bytes] = []
        self.functions: list[bytes] = []
        self._names = 0

    def name(self, stem: str = "t") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def input(self, name: str, dtype: str, shape: Dims | None) -> str:
        self.inputs.append(value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: str, shape: Dims | None = None) -> str:
        self.outputs.append(value_info(name, dtype, shape))
        return name

    def constant(self, array: Any, dtype: str | None = None) -> str:
        name = self.name("c")
        self.constants.append(tensor(name, np.asarray(array, dtype)))
        return name

    def external(self, array: Any, location: str, offset: int | None = None, length: int | None = None) -> str:
        """Adds a constant whose elements are in another file, and returns its name."""
        name, values = self.name("c"), np.asarray(array)
        dims = b"".join(number(1, size) for size in values.shape)
        where = {"location": location, "offset": offset, "length": length}
        entries = [message(1, key) + message(2, str(value)) for key, value in where.items() if value is not None]
        self.constants.append(
            dims
            + number(2, DTYPES[values.dtype.name])
            + message(8, name)
            + b"".join(message(13, entry) for entry in entries)
            + number(14, 1)
        )
        return name

    def nibbles(self, array: Any, dtype: str) -> str:
        """Adds a 4-bit constant and returns its name. Each byte contains two values, the first one in the low half."""
        name, values = self.name("c"), np.asarray(array).reshape(-1).astype(np.uint8) & 15
        values = np.append(values, [0] * (values.size % 2)).astype(np.uint8)
        dims = b"".join(number(1, size) for size in np.shape(array))
        packed = (values[::2] | values[1::2] << 4).astype(np.uint8)
        self.constants.append(dims + number(2, DTYPES[dtype]) + message(8, name) + message(9, packed.tobytes()))
        return name

    def quantization(self, scale: Any, zero_point: Any, dtype: str) -> tuple[str, str]:
        """Adds constants for a scale and a zero point, and returns their names."""
        return self.constant(scale, "float32"), self.constant(zero_point, dtype)

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Adds an operator, and returns the name of its first output."""
        outputs = outputs or [self.name()]
        self.nodes.append(
            b"".join(message(1, name) for name in inputs)
            + b"".join(message(2, name) for name in outputs)
            + message(4, op_type)
            + b"".join(message(5, attribute(name, value)) for name, value in attributes.items())
            + message(7, domain)
        )
        return outputs[0]

    def microsoft(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        return self.node(op_type, inputs, domain="com.microsoft", **attributes)

    def dequantized(self, x: str, scale: Any, zero_point: Any, dtype: str, **attributes: Any) -> str:
        return self.node("DequantizeLinear", [x, *self.quantization(scale, zero_point, dtype)], **attributes)

    def quantized(self, x: str, scale: Any, zero_point: Any, dtype: str) -> str:
        return self.node("QuantizeLinear", [x, *self.quantization(scale, zero_point, dtype)])

    def graph(self) -> bytes:
        """Returns the GraphProto. It can also be an attribute of a node, such as a branch of an `If`."""
        graph = b"".join(message(1, node) for node in self.nodes) + message(2, "graph")
        graph += b"".join(message(5, constant) for constant in self.constants)
        graph += b"".join(message(11, end) for end in self.inputs) + b"".join(message(12, end) for end in self.outputs)
        return graph

    def function(self, name: str, inputs: Sequence[str], outputs: Sequence[str], opset: int = 17) -> bytes:
        """Returns a FunctionProto in the domain `local` that contains all nodes so far. Its constants become `Constant`
        nodes.
        """
        ends = b"".join(message(4, each) for each in inputs) + b"".join(message(5, each) for each in outputs)
        nodes = b"".join(message(7, node) for node in self.nodes)
        sets = message(9, number(2, opset)) + message(9, message(1, "local") + number(2, 1))
        return message(1, name) + ends + nodes + sets + message(10, "local")

    def build(self, opset: int | None = 17) -> bytes:
        """Returns the file. If `opset` is None, the file has no entry for the default operator set."""
        sets = message(8, message(1, "com.microsoft") + number(2, 1))
        if opset is not None:
            sets = message(8, message(1, "") + number(2, opset)) + sets
        if self.functions:
            sets += message(8, message(1, "local") + number(2, 1))
        functions = b"".join(message(25, each) for each in self.functions)
        return number(1, 8) + message(2, "octet tests") + message(7, self.graph()) + sets + functions
