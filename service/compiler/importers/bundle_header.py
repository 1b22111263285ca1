"""The header of a LiteRT-LM container, a FlatBuffer."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from flatbuffers import table
from flatbuffers.number_types import Uint8Flags, Uint64Flags, UOffsetTFlags

from service.compiler.importers.names import printable

_MOST_SECTIONS, _MOST_ITEMS = 1 << 10, 1 << 6
_FIRST_FIELD, _ENTRY_BYTES = 4, 2
_MODEL_SECTION, _STRING_VALUE = 3, 9  # AnySectionDataType.TFLiteModel, VData.StringValue


@dataclass(frozen=True)
class Section:
    """A TFLite model in the container: the bytes of the file from `begin` to `end`.

    Attributes:
        number: the index among all sections.
        model_type: the value of the item `model_type`, or "".
    """

    number: int
    begin: int
    end: int
    model_type: str


def sections_of(header: bytes) -> Iterator[Section]:
    """Yields the sections with TFLite models.

    Raises:
        struct.error, IndexError, ValueError, TypeError, OverflowError: the header is damaged.
    """
    for number, section in enumerate(_Table(header).sections()):
        if section.number(3, Uint8Flags) == _MODEL_SECTION:
            begin, end = (section.number(slot, Uint64Flags) for slot in (1, 2))
            yield Section(number, begin, end, section.model_type())


class _Table:
    """A table of the container's header. Offsets outside of the header raise one of the errors of `sections_of`."""

    def __init__(self, data: bytes, position: int | None = None) -> None:
        root = struct.unpack_from("<I", data, 0)[0] if position is None else position
        self._data, self._table = data, table.Table(bytearray(data), root)

    def sections(self) -> Iterator[_Table]:
        metadata = self._child(1)
        return metadata._children(0, _MOST_SECTIONS) if metadata is not None else iter(())

    def number(self, slot: int, flags: type) -> int:
        offset = self._offset(slot)
        return int(self._table.Get(flags, offset + self._table.Pos)) if offset else 0

    def model_type(self) -> str:
        """Returns the value of the item `model_type`, or ""."""
        for item in self._children(0, _MOST_ITEMS):
            if item._text(0) == "model_type" and item.number(1, Uint8Flags) == _STRING_VALUE:
                value = item._child(2)
                return printable(value._text(0)) if value is not None else ""
        return ""

    def _offset(self, slot: int) -> int:
        return int(self._table.Offset(_FIRST_FIELD + slot * _ENTRY_BYTES))

    def _child(self, slot: int) -> _Table | None:
        offset = self._offset(slot)
        return _Table(self._data, self._table.Indirect(offset + self._table.Pos)) if offset else None

    def _children(self, slot: int, most: int) -> Iterator[_Table]:
        offset = self._offset(slot)
        if not offset:
            return
        count, first = self._table.VectorLen(offset), self._table.Vector(offset)
        if count > most:
            raise ValueError(f"it has {count} entries; the limit is {most}")
        for index in range(count):
            yield _Table(self._data, self._table.Indirect(first + index * UOffsetTFlags.bytewidth))

    def _text(self, slot: int) -> str:
        offset = self._offset(slot)
        raw: bytes = self._table.String(offset + self._table.Pos) if offset else b""
        return raw.decode("utf-8", "backslashreplace")
