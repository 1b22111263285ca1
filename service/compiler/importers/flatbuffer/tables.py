"""Reads the tables of a verified FlatBuffer by the names of a schema, for formats without generated readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from flatbuffers import number_types
from flatbuffers.table import Table as Raw

from service.compiler.importers.flatbuffer.kinds import Ref, Refs, Scalar, Schema, Union, Vector
from service.compiler.importers.flatbuffer.verifier import verify
from service.core.models.arrays import Array

_UNSIGNED: dict[int, Any] = {1: number_types.Uint8Flags, 2: number_types.Uint16Flags, 4: number_types.Uint32Flags}
_UNSIGNED |= {8: number_types.Uint64Flags}
_SIGNED: dict[int, Any] = {1: number_types.Int8Flags, 2: number_types.Int16Flags, 4: number_types.Int32Flags}
_SIGNED |= {8: number_types.Int64Flags}
_REAL: dict[int, Any] = {4: number_types.Float32Flags, 8: number_types.Float64Flags}


def read_root(data: bytes | memoryview, schema: Schema) -> Row:
    """Verifies `data` and returns its root table.

    Raises:
        MalformedModel: a part is outside of `data` or malformed.
    """
    verify(data, schema)
    return Row(schema, schema.root, Raw(data, int.from_bytes(data[:4], "little")))


class Row:
    """One table. A field that the file omits is zero, empty or None. (Defaults of a schema that are not zero are not
    applied.)

    Attributes:
        name: the table's name in the schema.
    """

    def __init__(self, schema: Schema, name: str, raw: Raw) -> None:
        self._schema, self.name, self._raw = schema, name, raw

    def has(self, field: str) -> bool:
        return bool(self._at(field))

    def unsigned(self, field: str) -> int:
        return int(self._scalar(field, _UNSIGNED))

    def signed(self, field: str) -> int:
        return int(self._scalar(field, _SIGNED))

    def real(self, field: str) -> float:
        return float(self._scalar(field, _REAL))

    def text(self, field: str) -> str:
        """Returns a string. Bytes that are not UTF-8 are escaped, because names are only compared or shown."""
        at = self._at(field)
        raw = self._raw.String(self._raw.Pos + at) if at else b""
        return bytes(raw).decode("utf-8", errors="backslashreplace")

    def numbers(self, field: str, dtype: str) -> Array:
        """Returns a vector of little-endian `dtype`, a view of the file."""
        at, element = self._at(field), np.dtype(dtype).newbyteorder("<")
        kind = self._kind(field)
        assert isinstance(kind, Vector), f"{self.name}.{field} is not a vector of numbers"
        assert kind.item_bytes == element.itemsize, f"{self.name}.{field} does not consist of {dtype}"
        if not at:
            return np.zeros(0, element)
        start, length = self._raw.Vector(at), self._raw.VectorLen(at)
        return np.frombuffer(self._raw.Bytes, element, length, start)

    def data(self, field: str) -> memoryview:
        """Returns a vector of bytes, a view of the file."""
        assert self._kind(field) == Vector(1), f"{self.name}.{field} does not consist of bytes"
        at = self._at(field)
        if not at:
            return memoryview(b"")
        start = self._raw.Vector(at)
        return memoryview(self._raw.Bytes)[start : start + self._raw.VectorLen(at)]

    def table(self, field: str) -> Row | None:
        """Returns a table, or None if the file omits it or the schema does not contain this member of a union."""
        at, name = self._at(field), self._child(field)
        return Row(self._schema, name, self._behind(self._raw.Pos + at)) if at and name else None

    def tables(self, field: str) -> Sequence[Row]:
        at, name = self._at(field), self._child(field)
        if not at or not name:
            return ()
        start, length = self._raw.Vector(at), self._raw.VectorLen(at)
        return [Row(self._schema, name, self._behind(start + 4 * index)) for index in range(length)]

    def _scalar(self, field: str, flags: dict[int, Any]) -> Any:
        kind, at = self._kind(field), self._at(field)
        assert isinstance(kind, Scalar), f"{self.name}.{field} is not a number"
        return self._raw.Get(flags[kind.size_bytes], self._raw.Pos + at) if at else 0

    def _at(self, field: str) -> int:
        slot, _ = self._schema.tables[self.name][field]
        return int(self._raw.Offset(4 + 2 * slot))

    def _kind(self, field: str) -> Any:
        return self._schema.tables[self.name][field][1]

    def _behind(self, position: int) -> Raw:
        return Raw(self._raw.Bytes, self._raw.Indirect(position))

    def _child(self, field: str) -> str | None:
        kind = self._kind(field)
        if isinstance(kind, Union):
            return kind.tables.get(self.unsigned(kind.selector))
        assert isinstance(kind, Ref | Refs), f"{self.name}.{field} is not a table"
        return kind.table
