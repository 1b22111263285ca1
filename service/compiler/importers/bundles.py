"""Bundles of TFLite models: MediaPipe's `.task` files, which are zip archives, and LiteRT-LM's `.litertlm` files.

A bundle contains models and other files, such as tokenizers. One model is compiled, and the user chooses it. This
module does not load TVM, because the command line uses it.
"""

from __future__ import annotations

import io
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from flatbuffers import table
from flatbuffers.number_types import Uint8Flags, Uint64Flags, UOffsetTFlags

from service.compiler.importers.archive import Archive
from service.compiler.importers.names import join_names, printable, unique
from service.compiler.importers.zip_names import has_models, names_of
from service.core.errors import InvalidInput, MalformedModel

CONTAINER_MAGIC = b"LITERTLM"
_ZIP_MAGIC = b"PK\x03\x04"
_TFLITE = b"TFL3"
_IDENTIFIER = slice(4, 8)
_MOST_DEFLATED_BYTES = 1 << 30
_DEEPEST = 3  # bundles inside of bundles

# The container's header: magic, version (three numbers), padding, the end of the header; then a FlatBuffer
# (schema/core/litertlm_header_schema.fbs of google-ai-edge/LiteRT-LM).
_HEADER = struct.Struct("<8s4IQ")
_MOST_HEADER_BYTES, _MOST_SECTIONS, _MOST_ITEMS = 1 << 20, 1 << 10, 1 << 6
_FIRST_FIELD, _ENTRY_BYTES = 4, 2
_MODEL_SECTION, _STRING_VALUE = 3, 9  # AnySectionDataType.TFLiteModel, VData.StringValue


@dataclass(frozen=True)
class Member:
    """A model in a bundle: the bytes of the file from `begin` to `end`, or, in an archive, what `read` returns."""

    begin: int = 0
    end: int = 0
    read: Callable[[], bytes] | None = None


def is_bundle(path: Path) -> bool:
    """Returns true if `path` is a bundle of TFLite models."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if head.startswith(CONTAINER_MAGIC):
            return True
        return head.startswith(_ZIP_MAGIC) and has_models(names_of(file) or ())


def extract(path: Path, member: str, target: Path) -> None:
    """Writes a model of the bundle at `path` to `target`. If the bundle has only one model, `member` may be empty.

    Raises:
        InvalidInput: the bundle has no such model, or has several and `member` is empty. The error lists them.
        MalformedModel: the bundle is damaged, or exceeds the limits.
    """
    members = members_of(path)
    names = [*members]
    if not names:
        raise InvalidInput(f"{path.name} contains no TFLite model")
    if member not in members and (member or len(names) > 1):
        what = f"{path.name} has no model {member!r}" if member else f"{path.name} contains {len(names)} models"
        raise InvalidInput(what, hint=f"choose one with --member: {join_names([printable(name) for name in names])}")
    found = members[member or names[0]]
    with target.open("wb") as output:
        if found.read is not None:
            output.write(found.read())
            return
        with path.open("rb") as file:
            file.seek(found.begin)
            shutil.copyfileobj(_Part(file, found.end - found.begin), output)


def members_of(path: Path) -> Mapping[str, Member]:
    """Returns the TFLite models in a bundle, by name.

    Raises:
        MalformedModel: the bundle is damaged, or exceeds the limits.
    """
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
        if head.startswith(CONTAINER_MAGIC):
            return _sections(file, head, path.stat().st_size)
    return dict(_records(_opened(path), "", 1))


def _opened(data: Path | bytes) -> Archive:
    most = _MOST_DEFLATED_BYTES
    return Archive(data, with_folders=True, largest_deflated_bytes=most, most_deflated_bytes=most)


def _records(archive: Archive, prefix: str, depth: int) -> Iterator[tuple[str, Member]]:
    """Yields the models in an archive and in the archives inside of it: `hand_landmarker.task/hand_detector.tflite`."""
    for name in archive:
        if not has_models((name,)):
            continue
        data = archive.read(name)
        if data[_IDENTIFIER] == _TFLITE:
            yield prefix + name, Member(read=partial(archive.read, name))
        elif data.startswith(_ZIP_MAGIC) and depth < _DEEPEST:
            yield from _records(_opened(data), f"{prefix}{name}/", depth + 1)


def _sections(file: BinaryIO, head: bytes, size: int) -> dict[str, Member]:
    if len(head) < _HEADER.size:
        raise MalformedModel("the LiteRT-LM container is cut short")
    *_, end = _HEADER.unpack(head)
    if not _HEADER.size < end <= min(size, _HEADER.size + _MOST_HEADER_BYTES):
        raise MalformedModel(f"the LiteRT-LM container has a header that ends at byte {end}")
    header = file.read(end - _HEADER.size)
    members: dict[str, Member] = {}
    try:
        for number, section in enumerate(_Header(header).sections()):
            begin, stop = (section.number(slot, Uint64Flags) for slot in (1, 2))
            if section.number(3, Uint8Flags) != _MODEL_SECTION:
                continue
            if not end <= begin < stop <= size:
                raise MalformedModel(f"section {number} of the LiteRT-LM container is outside of the file")
            name = section.model_type() or f"section_{number}"
            members[unique(name, members)] = Member(begin, stop)
    except (struct.error, IndexError, ValueError, TypeError, OverflowError) as error:
        raise MalformedModel(f"the header of the LiteRT-LM container is damaged: {error}") from error
    return members


class _Header:
    """A table of the container's header. Offsets outside of the header raise an error that `_sections` converts."""

    def __init__(self, data: bytes, position: int | None = None) -> None:
        root = struct.unpack_from("<I", data, 0)[0] if position is None else position
        self._data, self._table = data, table.Table(bytearray(data), root)

    def sections(self) -> Iterator[_Header]:
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

    def _child(self, slot: int) -> _Header | None:
        offset = self._offset(slot)
        return _Header(self._data, self._table.Indirect(offset + self._table.Pos)) if offset else None

    def _children(self, slot: int, most: int) -> Iterator[_Header]:
        offset = self._offset(slot)
        if not offset:
            return
        count, first = self._table.VectorLen(offset), self._table.Vector(offset)
        if count > most:
            raise ValueError(f"it has {count} entries; the limit is {most}")
        for index in range(count):
            yield _Header(self._data, self._table.Indirect(first + index * UOffsetTFlags.bytewidth))

    def _text(self, slot: int) -> str:
        offset = self._offset(slot)
        raw: bytes = self._table.String(offset + self._table.Pos) if offset else b""
        return raw.decode("utf-8", "backslashreplace")


class _Part(io.RawIOBase):
    """The next `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int = -1) -> bytes:
        part = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(part)
        return part
