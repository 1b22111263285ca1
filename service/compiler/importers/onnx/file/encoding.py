"""Encodes parts of an ONNX file (onnx.proto). This module does not load TVM, because the command line uses it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from service.compiler.importers.onnx.file import protobuf, schema
from service.compiler.importers.onnx.file.wire import Wire
from service.core.models.arrays import Array

DTYPES = {name: number for number, name in schema.DTYPES.items()}
RAW = {*DTYPES} - {"int4", "uint4", "string"}  # types whose elements have the same bytes in the file and in memory
Attribute = int | float | str | tuple[int, ...]


def attribute(name: str, value: Attribute) -> bytes:
    """Encodes an AttributeProto."""
    named = protobuf.text(1, name)
    match value:
        case int():
            return named + protobuf.number(3, value) + protobuf.number(20, 2)
        case float():
            stored = protobuf.varint(2 << 3 | Wire.FIXED32) + struct.pack("<f", value)
            return named + stored + protobuf.number(20, 1)
        case str():
            return named + protobuf.text(4, value) + protobuf.number(20, 3)
        case _:
            return named + b"".join(protobuf.number(8, each) for each in value) + protobuf.number(20, 7)


def tensor(name: str, dtype: str, values: Array) -> bytes:
    """Encodes a TensorProto whose dtype is one of `RAW`. Values of bfloat16 are passed as float32."""
    if dtype == "bfloat16":
        from service.compiler.qnn.numerics.sums.bfloat16 import words_of

        values = words_of(values)
    dims = b"".join(protobuf.number(1, size) for size in values.shape)
    kind, raw = protobuf.number(2, DTYPES[dtype]), np.ascontiguousarray(values).tobytes()
    return dims + kind + protobuf.text(8, name) + protobuf.message(9, raw)


def value_info(name: str, dtype: str, shape: Sequence[int | str] | None = None) -> bytes:
    """Encodes a ValueInfoProto. A dimension with a name is open. Without `shape`, the value may have any shape."""
    dims = b"".join(protobuf.message(1, _dimension(size)) for size in shape or ())
    shape_field = b"" if shape is None else protobuf.message(2, dims)
    kind = protobuf.message(1, protobuf.number(1, DTYPES[dtype]) + shape_field)
    return protobuf.text(1, name) + protobuf.message(2, kind)


def node(op_type: str, inputs: Sequence[str], output: str, **attributes: Attribute) -> bytes:
    """Encodes a NodeProto of ONNX's own domain whose name is that of its output."""
    ends = b"".join(protobuf.text(1, name) for name in inputs) + protobuf.text(2, output)
    encoded = b"".join(protobuf.message(5, attribute(name, value)) for name, value in attributes.items())
    return ends + protobuf.text(3, output) + protobuf.text(4, op_type) + encoded


def _dimension(size: int | str) -> bytes:
    return protobuf.text(2, size) if isinstance(size, str) else protobuf.number(1, size)
