"""The types of fields in FlatBuffers, and the tables that consist of them, as data for the verifier and the reader.

Each format has a file with its tables. Fields that are never read are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scalar:
    size_bytes: int


@dataclass(frozen=True)
class Vector:
    """A vector of scalars."""

    item_bytes: int


@dataclass(frozen=True)
class Text:
    """A string: UTF-8, followed by a NUL byte."""


@dataclass(frozen=True)
class Ref:
    """A table."""

    table: str


@dataclass(frozen=True)
class Refs:
    """A vector of tables."""

    table: str


@dataclass(frozen=True)
class Union:
    """A table whose type is the value of the field `selector`. Tables of types that `tables` does not contain are never
    read.
    """

    selector: str
    tables: Mapping[int, str] = field(hash=False)


Kind = Scalar | Vector | Text | Ref | Refs | Union
Table = Mapping[str, tuple[int, Kind]]  # field -> its slot, and its type


@dataclass(frozen=True)
class Schema:
    """The tables of one type of buffer.

    Attributes:
        name: the name of this buffer type in messages.
        identifier: the file identifier of such buffers.
        root: the table that refers to all others.
    """

    name: str
    identifier: bytes
    root: str
    tables: Mapping[str, Table] = field(hash=False)


BYTE, BOOL, INT, UINT, LONG, FLOAT = Scalar(1), Scalar(1), Scalar(4), Scalar(4), Scalar(8), Scalar(4)
