"""Decodes a file's bytes into messages, by the schema."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from service.compiler.importers.onnx.file import schema
from service.compiler.importers.onnx.file.schema import Kind, Many, Number, Numbers, One, Seen, Text, Texts
from service.compiler.importers.onnx.file.wire import Budget, Field, Wire, fields, malformed, numbers, signed

# A message: its fields that occur in the file. Numbers and bytes are values, repeated fields are lists, and repeated
# numbers are arrays.
Values = Mapping[str, Any]

_FIXED = {"float32": Wire.FIXED32, "float64": Wire.FIXED64}


def read_message(data: memoryview, name: str = "Model", where: str = "", budget: Budget | None = None) -> Values:
    """Decodes the message `name` of the schema in `data`.

    The time is proportional to the size of the file, because every part is read at most once.

    Raises:
        MalformedModel: the bytes are not such a message.
    """
    budget = budget or Budget()
    where = where or name
    known, found = schema.MESSAGES[name], defaultdict(list)
    for field in fields(data, where, budget):
        if field.number in known:
            found[field.number].append(field)
    return {known[number][0]: _value(parts, *known[number], where, budget) for number, parts in found.items()}


def _value(parts: list[Field], name: str, kind: Kind, where: str, budget: Budget) -> Any:
    position = f"{where}.{name}"
    match kind:
        case Seen():
            return True
        case Number(dtype):
            # the last value counts, which is protobuf's rule
            last = _of(parts[-1], _FIXED.get(dtype, Wire.VARINT), position)
            assert isinstance(last, int)
            return float(np.uint32(last).view(np.float32)) if dtype == "float32" else signed(last)
        case Numbers(dtype):
            wires = (Wire.BYTES, _FIXED.get(dtype, Wire.VARINT))
            rows = [numbers(_allowed(part, wires, position), dtype, position) for part in parts]
            return rows[0] if len(rows) == 1 else np.concatenate(rows)
        case Text():
            return _of(parts[-1], Wire.BYTES, position)
        case Texts():
            return [_of(part, Wire.BYTES, position) for part in parts]
        case One(message):
            return read_message(_merged(parts, position), message, position, budget)
        case Many(message):
            return [
                read_message(_bytes(part, position), message, f"{position}[{index}]", budget)
                for index, part in enumerate(parts)
            ]


def _merged(parts: list[Field], index: str) -> memoryview:
    """Returns the bytes of a field that contains one message. If the field occurs several times, protobuf merges the
    messages: concatenating their encodings gives the encoding of the merged message.
    """
    found = [_bytes(part, index) for part in parts]
    return found[0] if len(found) == 1 else memoryview(b"".join(found))


def _bytes(field: Field, index: str) -> memoryview:
    value = _of(field, Wire.BYTES, index)
    assert isinstance(value, memoryview)
    return value


def _of(field: Field, wire: Wire, index: str) -> int | memoryview:
    return _allowed(field, (wire,), index).value


def _allowed(field: Field, wires: tuple[Wire, ...], index: str) -> Field:
    if field.wire not in wires:
        malformed(index, f"it is written as {field.wire.name.lower()}")
    return field
