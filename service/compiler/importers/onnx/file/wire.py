"""Reads protobuf's wire format (protobuf.dev/programming-guides/encoding) without trusting its contents.

A message is a sequence of fields. A field is a number, a wire type and a value. A length can only refer to later bytes
of the enclosing message, so reading always ends. Values are views of the file; only numbers are copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

_MAX_VARINT_BYTES = 10
_MAX_FIELD_NUMBER = (1 << 29) - 1
_MAX_FIELDS = 4_000_000  # reading a field takes about a microsecond; the largest models in use have some 100,000
_UINT32, _UINT64 = struct.Struct("<I"), struct.Struct("<Q")


class Wire(IntEnum):
    """Wire types. Groups (3 and 4) are obsolete in protobuf."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


@dataclass
class Budget:
    """The number of fields that may still be read, in all messages of a file together."""

    fields: int = _MAX_FIELDS


@dataclass(frozen=True)
class Field:
    """One field as it is in the file.

    Attributes:
        value: a non-negative number for a varint or fixed field; the bytes of other fields.
    """

    number: int
    wire: Wire
    value: int | memoryview


def fields(data: memoryview, where: str, budget: Budget) -> Iterator[Field]:
    """Iterates over the fields of the message in `data`, in order.

    Args:
        where: the message's position in the file, for error messages.

    Raises:
        MalformedModel: the fields are not well formed.
    """
    position = 0
    while position < len(data):
        budget.fields -= 1
        if budget.fields < 0:
            raise Unsupported(f"the file has more than {_MAX_FIELDS} fields", hint="export it with packed numbers")
        tag, position = _varint(data, position, where)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= _MAX_FIELD_NUMBER:
            malformed(where, f"a field has the invalid number {number}")
        match wire:
            case Wire.VARINT:
                value, position = _varint(data, position, where)
                yield Field(number, Wire.VARINT, value)
            case Wire.BYTES:
                length, position = _varint(data, position, where)
                if length > len(data) - position:
                    malformed(where, f"field {number} has {length} bytes, but only {len(data) - position} are left")
                yield Field(number, Wire.BYTES, data[position : position + length])
                position += length
            case Wire.FIXED32 | Wire.FIXED64:
                kind = _UINT32 if wire == Wire.FIXED32 else _UINT64
                if kind.size > len(data) - position:
                    malformed(where, f"field {number} is cut short")
                yield Field(number, Wire(wire), int(kind.unpack_from(data, position)[0]))
                position += kind.size
            case _:
                malformed(where, f"field {number} has the unknown wire type {wire}")


def signed(value: int) -> int:
    """Returns a varint as `int32` or `int64`. Negative numbers are written in ten bytes, in two's complement of 64
    bits.
    """
    return value - (1 << 64) if value >> 63 else value


def varints(data: memoryview, where: str) -> NDArray[np.int64]:
    """Decodes a packed sequence of varints with array operations, because weights may be millions of varints."""
    raw = np.frombuffer(data, np.uint8)
    if not len(raw):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        malformed(where, "the last number is cut short")
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() >= _MAX_VARINT_BYTES:
        malformed(where, "a number has more than ten bytes")
    total = np.zeros(len(starts), np.uint64)
    for index in range(int((ends - starts).max()) + 1):
        there = starts + index <= ends
        total[there] |= (raw[starts[there] + index].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * index)
    return total.view(np.int64)


def malformed(where: str, what: str) -> NoReturn:
    """Raises `MalformedModel`."""
    raise MalformedModel(
        f"not a well-formed ONNX file: at {where}, {what}",
        hint="the file is damaged or was cut short; upload it again",
    )


def _varint(data: memoryview, position: int, where: str) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & ((1 << 64) - 1), position + index + 1
    malformed(where, "a number is cut short or has more than ten bytes")


def numbers(field: Field, dtype: str, where: str) -> Array:
    """Returns the elements of a repeated field of numbers. The elements may be packed or single; protobuf's parsers
    accept both forms.

    Args:
        dtype: `float32`, `float64`, or `int64` for everything that is written as varints.
    """
    if isinstance(field.value, int):
        if dtype == "int64":
            return np.array([signed(field.value)], np.int64)
        bits = np.array([field.value], np.uint32 if dtype == "float32" else np.uint64)
        return bits.view(dtype)
    if dtype == "int64":
        return varints(field.value, where)
    size = np.dtype(dtype).itemsize
    if len(field.value) % size:
        malformed(where, f"{len(field.value)} bytes are not a multiple of the size of {dtype}")
    return np.frombuffer(field.value, f"<f{size}")
