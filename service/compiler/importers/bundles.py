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
_MOST_HEADER_BYTES = 1 << 20


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
    # A client that pushes other files needs no package `flatbuffers`.
    from service.compiler.importers.bundle_header import sections_of

    header = file.read(end - _HEADER.size)
    members: dict[str, Member] = {}
    try:
        for section in sections_of(header):
            if not end <= section.begin < section.end <= size:
                raise MalformedModel(f"section {section.number} of the LiteRT-LM container is outside of the file")
            name = section.model_type or f"section_{section.number}"
            members[unique(name, members)] = Member(section.begin, section.end)
    except (struct.error, IndexError, ValueError, TypeError, OverflowError) as error:
        raise MalformedModel(f"the header of the LiteRT-LM container is damaged: {error}") from error
    return members


class _Part(io.RawIOBase):
    """The next `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int = -1) -> bytes:
        part = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(part)
        return part
