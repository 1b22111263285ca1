"""Writes protobuf's wire format (protobuf.dev/programming-guides/encoding). `wire` reads it."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from service.compiler.importers.onnx.file.wire import Field, Wire


def varint(value: int) -> bytes:
    """Encodes `value`. A negative value takes ten bytes, as two's complement of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | Wire.VARINT) + varint(value)


def message(field: int, content: bytes | memoryview) -> bytes:
    """Encodes a string, bytes, or a nested message."""
    return varint(field << 3 | Wire.BYTES) + varint(len(content)) + bytes(content)


def text(field: int, content: str) -> bytes:
    return message(field, content.encode())


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Encodes fields exactly as they were read."""
    return b"".join(map(_field, fields))


def _field(field: Field) -> bytes:
    tag = varint(field.number << 3 | field.wire)
    if not isinstance(field.value, int):
        return message(field.number, field.value)
    match field.wire:
        case Wire.FIXED32:
            return tag + struct.pack("<I", field.value)
        case Wire.FIXED64:
            return tag + struct.pack("<Q", field.value)
        case _:
            return tag + varint(field.value)
