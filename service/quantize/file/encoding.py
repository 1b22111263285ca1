"""Encodes parts of an ONNX file (onnx.proto)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from service.compiler.importers.onnx.file import schema
from service.compiler.importers.onnx.file.wire import Wire
from service.compiler.qnn.numerics.sums.bfloat16 import BFLOAT16, words_of
from service.core.models.arrays import Array
from service.quantize.file import protobuf

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
    values = words_of(values) if dtype == BFLOAT16 else values
    dims = b"".join(protobuf.number(1, size) for size in values.shape)
    kind, raw = protobuf.number(2, DTYPES[dtype]), np.ascontiguousarray(values).tobytes()
    return dims + kind + protobuf.text(8, name) + protobuf.message(9, raw)


def value_info(name: str, dtype: str, shape: Sequence[int] | None = None) -> bytes:
    """Encodes a ValueInfoProto. Without `shape`, the value may have any shape."""
    dims = b"".join(protobuf.message(1, protobuf.number(1, size)) for size in shape or ())
    shape_field = b"" if shape is None else protobuf.message(2, dims)
    kind = protobuf.message(1, protobuf.number(1, DTYPES[dtype]) + shape_field)
    return protobuf.text(1, name) + protobuf.message(2, kind)
