"""Reads the names of the records in a zip archive. Reads only its central directory.

The API does this for every upload that begins like an archive. Only the end of the file is read, up to a limit, and
nothing is unpacked. The format is defined in APPNOTE.TXT 4.3.12 and 4.3.16.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import BinaryIO

_MOST_BYTES = 1 << 24  # limit of the directory
_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LONGEST_COMMENT = 1 << 16
_MODEL_SUFFIXES = (".tflite", ".task")
_MODEL_PREFIX = "TF_LITE_"  # names of the models in a .task file of a language model


def names_of(file: BinaryIO) -> frozenset[str] | None:
    """Returns the names of the archive's records, or None if its directory cannot be read.

    Archives of 4 GiB or more (Zip64) are not read.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_COMMENT - _END.size))
    tail = file.read(_LONGEST_COMMENT + _END.size)
    position = tail.rfind(b"PK\5\6")
    if position < 0 or len(tail) - position < _END.size:
        return None
    *_, count, length, offset, _ = _END.unpack_from(tail, position)
    if length > _MOST_BYTES or offset + length > size:
        return None
    file.seek(offset)
    return _names(file.read(length), count)


def _names(directory: bytes, count: int) -> frozenset[str] | None:
    names, position = set(), 0
    for _ in range(count):
        if position + _ENTRY.size > len(directory):
            return None
        magic, *_, name, extra, comment, _, _, _, _ = _ENTRY.unpack_from(directory, position)
        if magic != b"PK\1\2":
            return None
        position += _ENTRY.size
        names.add(directory[position : position + name].decode("utf-8", "replace"))
        position += name + extra + comment
    return frozenset(names)


def has_models(names: Iterable[str]) -> bool:
    """Returns true if an archive with records of these names is a bundle of TFLite models (`bundles`)."""
    return any(name.endswith(_MODEL_SUFFIXES) or name.rpartition("/")[2].startswith(_MODEL_PREFIX) for name in names)
