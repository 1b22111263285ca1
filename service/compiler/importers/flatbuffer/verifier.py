"""Checks that a file is a well-formed FlatBuffer before anything reads it.

The Python FlatBuffers runtime follows offsets without checking them. A wrong offset raises an IndexError, or silently
reads another table's bytes. After `verify`, every offset, table, vector and string that the schema's readers use is
inside the buffer. The rules are those of the C++ `flatbuffers::Verifier` (flatbuffers/verifier.h), with two exceptions.
Alignment is not required, because nothing here loads through a pointer. And the parts of a file may be shared only
within limits, because a reader copies a shared part once for each reference. All reachable parts, counted with
repetitions, may be at most `_SHARING` times as large as the file, so that reading takes time and memory in proportion
to the file.

Offsets to children are unsigned and relative to their own position, so they only point forward and cannot form a cycle.
Only the offset from a table to its vtable may point back, and a vtable contains no offsets to other parts. Depth is
bounded, because no table of the schemas contains itself.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from service.compiler.importers.flatbuffer.kinds import (
    Kind,
    Ref,
    Refs,
    Scalar,
    Schema,
    Table,
    Text,
    Union,
    Vector,
)
from service.core.errors import MalformedModel

_UINT8, _UINT16 = struct.Struct("<B"), struct.Struct("<H")
_INT32, _UINT32 = struct.Struct("<i"), struct.Struct("<I")
_OFFSET_BYTES = 4
_MAX_BYTES = (1 << 31) - 1  # FLATBUFFERS_MAX_BUFFER_SIZE: larger offsets cannot be represented
_MAX_TABLES = 250_000  # ten times as many as the largest known model has; reading a table takes some 10 microseconds
_SHARING, _SHARING_FLOOR_BYTES = 4, 4096  # the minimum is for tiny files, in which writers share many parts


def verify(data: bytes | memoryview, schema: Schema) -> None:
    """Checks that everything that the tables of `schema` declare is inside of `data`.

    Takes time in proportion to the number of tables and vectors. There may be at most `_MAX_TABLES` of them.

    Raises:
        MalformedModel: a part is outside of `data` or malformed. The message names the table and the field.
    """
    Verifier(memoryview(data), schema).file()


class Verifier:
    """Verifies one buffer in one pass."""

    def __init__(self, data: memoryview, schema: Schema) -> None:
        self._data, self._size, self._schema = data, len(data), schema
        self._path: list[str] = []  # the tables and fields that lead to the current position, for messages
        self._tables = 0
        self._budget_bytes = _SHARING * self._size + _SHARING_FLOOR_BYTES

    def file(self) -> None:
        root = self._schema.root
        self._path.append(root)
        self._require(self._size >= 2 * _OFFSET_BYTES, f"the file has only {self._size} bytes")
        identifier = bytes(self._data[_OFFSET_BYTES : 2 * _OFFSET_BYTES])
        self._require(identifier == self._schema.identifier, f"the file identifier is {identifier!r}")
        self._table(root, self._follow(0))

    def _table(self, name: str, position: int) -> None:
        self._tables += 1
        self._require(self._tables <= _MAX_TABLES, f"the file has more than {_MAX_TABLES} tables")
        self._spend(_OFFSET_BYTES)
        vtable = position - self._read(_INT32, position)
        self._inside(vtable, 2 * _UINT16.size, "its vtable")
        vtable_bytes = self._read(_UINT16, vtable)
        self._require(vtable_bytes >= 4 and vtable_bytes % 2 == 0, f"the vtable has {vtable_bytes} bytes")
        self._inside(vtable, vtable_bytes, "its vtable")
        table = self._schema.tables[name]
        for field_name, (slot, kind) in table.items():
            where = self._field(vtable, vtable_bytes, slot)
            if where:
                self._path.append(field_name)
                self._value(kind, position + where, table, position, vtable, vtable_bytes)
                self._path.pop()

    def _field(self, vtable: int, vtable_bytes: int, slot: int) -> int:
        """Returns the offset of a field in its table, or 0 if the table omits the field."""
        entry = 2 * _UINT16.size + slot * _UINT16.size
        return self._read(_UINT16, vtable + entry) if entry < vtable_bytes else 0

    def _value(
        self, kind: Kind, position: int, table: Table, table_position: int, vtable: int, vtable_bytes: int
    ) -> None:
        match kind:
            case Scalar(size_bytes):
                self._inside(position, size_bytes, "the value")
            case Vector(item_bytes):
                self._vector(self._follow(position), item_bytes)
            case Text():
                start, length = self._vector(self._follow(position), 1)
                self._inside(start, length + 1, "the string")
                self._require(self._data[start + length] == 0, "the string is not terminated")
            case Ref(name):
                self._table(name, self._follow(position))
            case Refs(name):
                start, length = self._vector(self._follow(position), _OFFSET_BYTES)
                for index in range(length):
                    self._path.append(f"[{index}]")
                    self._table(name, self._follow(start + index * _OFFSET_BYTES))
                    self._path.pop()
            case Union(selector, tables):
                slot, _ = table[selector]
                where = self._field(vtable, vtable_bytes, slot)
                chosen = tables.get(self._read(_UINT8, table_position + where) if where else 0)
                if chosen:
                    self._table(chosen, self._follow(position))

    def _vector(self, position: int, item_bytes: int) -> tuple[int, int]:
        """Returns the start and the number of items of a vector."""
        length = self._read(_UINT32, position)
        start = position + _UINT32.size
        self._inside(start, length * item_bytes, f"the vector of {length} items")
        self._spend(_UINT32.size + length * item_bytes)
        return start, length

    def _follow(self, position: int) -> int:
        offset = self._read(_UINT32, position)
        self._require(0 < offset <= _MAX_BYTES, f"the offset {offset} is out of range")
        target = position + offset
        self._inside(target, _OFFSET_BYTES, f"the offset {offset}")
        return target

    def _read(self, what: struct.Struct, position: int) -> int:
        self._inside(position, what.size, "the value")
        (value,) = what.unpack_from(self._data, position)
        return int(value)

    def _inside(self, position: int, size_bytes: int, what: str) -> None:
        if position < 0 or position + size_bytes > self._size:
            self._fail(f"{what} lies outside the file")

    def _spend(self, size_bytes: int) -> None:
        self._budget_bytes -= size_bytes
        self._require(self._budget_bytes >= 0, "the parts of the file overlap too often")

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            self._fail(what)

    def _fail(self, what: str) -> NoReturn:
        path = ".".join(self._path).replace(".[", "[")
        raise MalformedModel(
            f"not a well-formed {self._schema.name}: at {path}, {what}",
            hint="the file is damaged or was cut short; upload it again",
        )
