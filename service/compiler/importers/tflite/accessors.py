"""Helper functions for the generated accessors of the `tflite` package."""

from __future__ import annotations

from typing import Any

from flatbuffers import number_types

_FIRST_FIELD, _ENTRY_BYTES = 4, 2  # the offset of a vtable's first field, and the size of its entries


def ints(table: Any, vector: str) -> tuple[int, ...]:
    """Returns a vector of integers. If the file omits the vector, the accessor returns 0, and this function returns an
    empty tuple.
    """
    length = getattr(table, f"{vector}Length")()
    return tuple(int(value) for value in getattr(table, f"{vector}AsNumpy")()) if length else ()


def floats(table: Any, vector: str) -> tuple[float, ...]:
    """Returns a vector of float32; empty if the file omits it."""
    length = getattr(table, f"{vector}Length")()
    return tuple(float(value) for value in getattr(table, f"{vector}AsNumpy")()) if length else ()


def int32_at(table: Any, slot: int) -> int:
    """Returns the int32 field at `slot` of a table, exactly as the file stores it, or 0 if the file omits it."""
    offset = table._tab.Offset(_FIRST_FIELD + slot * _ENTRY_BYTES)
    return int(table._tab.Get(number_types.Int32Flags, offset + table._tab.Pos)) if offset else 0


def int32_of(union: Any, slot: int) -> int:
    """Returns an int32 field of a table that the `tflite` package does not have: of a union's value."""
    offset = union.Offset(_FIRST_FIELD + slot * _ENTRY_BYTES)
    return int(union.Get(number_types.Int32Flags, offset + union.Pos)) if offset else 0


def text(raw: bytes | None) -> str:
    """Returns a name from the file. Bytes that are not UTF-8 are escaped rather than refused, because names are only
    shown to people.
    """
    return (raw or b"").decode("utf-8", errors="backslashreplace")
