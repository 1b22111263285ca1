"""The zip archives that PyTorch writes: `torch.jit.save` and `torch.export.save`.

Every record lies in one folder, named after the file (caffe2/serialize/inline_container.cc). Tensors are stored, code
and JSON are deflated. Nothing is ever unpacked to disk; every record is read into memory, within limits.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator
from typing import NoReturn

from service.core.errors import MalformedModel

_MOST_RECORDS = 1 << 16
_LONGEST_NAME = 1 << 10
_LARGEST_TEXT_BYTES = 1 << 25  # of a record that is deflated: code, JSON
_MOST_DEFLATED_BYTES = 1 << 27  # all of them together
_ENCRYPTED = 1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """The records of an archive, by their names inside its folder.

    Raises:
        MalformedModel: it is not a zip file, or not one as PyTorch writes it: names that lead elsewhere, names twice,
            encryption, links, other compression, sizes that the file does not hold or that are absurd.
    """

    def __init__(self, data: bytes) -> None:
        self.size_bytes = len(data)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OverflowError, EOFError, NotImplementedError, UnicodeError) as exc:
            raise MalformedModel(f"the zip archive cannot be read: {exc}") from exc
        self._records = self._checked()

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def read(self, name: str) -> bytes:
        """The bytes of a record.

        Raises:
            MalformedModel: there is none, or it is damaged.
        """
        if name not in self._records:
            _malformed(f"lacks the record {_shown(name)}")
        info = self._records[name]
        try:
            with self._zip.open(info) as record:
                data = record.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError) as exc:
            raise MalformedModel(f"the record {_shown(name)} of the archive is damaged: {exc}") from exc
        if len(data) != info.file_size:
            _malformed(f"says that {_shown(name)} has {info.file_size} bytes, but it does not")
        return data

    def text(self, name: str) -> str:
        """A record of UTF-8.

        Raises:
            MalformedModel: there is none, or it is something else.
        """
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as exc:
            raise MalformedModel(f"the record {_shown(name)} of the archive is not UTF-8") from exc

    def _checked(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._zip.infolist()
        if not 0 < len(infos) <= _MOST_RECORDS:
            _malformed(f"has {len(infos)} records")
        records: dict[str, zipfile.ZipInfo] = {}
        stored = deflated = 0
        folder = infos[0].filename.split("/")[0]
        for info in infos:
            name = _inside(info, folder)
            if name in records:
                _malformed(f"has the record {_shown(name)} twice")
            records[name] = info
            if info.compress_type == zipfile.ZIP_STORED:
                stored += info.file_size
                if info.file_size != info.compress_size:
                    _malformed(f"stores {_shown(name)} in another size than its own")
            else:
                deflated += info.file_size
                if info.file_size > _LARGEST_TEXT_BYTES:
                    _malformed(f"deflates {_shown(name)} from {info.file_size} bytes")
        if stored > self.size_bytes:
            _malformed(f"of {self.size_bytes} bytes says that it holds {stored}")
        if deflated > _MOST_DEFLATED_BYTES:
            _malformed(f"unpacks to {deflated} bytes")
        return records


def _inside(info: zipfile.ZipInfo, folder: str) -> str:
    """The record's name inside the archive's folder, if it is one as PyTorch writes it."""
    name = info.filename
    parts = name.split("/")
    if len(name) > _LONGEST_NAME or not name.isprintable() or "\\" in name or ":" in name:
        _malformed(f"has a record of the name {_shown(name)}")
    if len(parts) < 2 or parts[0] != folder or any(part in ("", ".", "..") for part in parts):
        _malformed(f"has the record {_shown(name)}, which leads out of its folder")
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
        _malformed(f"encrypts {_shown(name)}, or compresses it in an unknown way")
    if stat.S_ISLNK(info.external_attr >> 16):
        _malformed(f"has a link as {_shown(name)}")
    return "/".join(parts[1:])


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 200 else name[:199] + "…")


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the zip archive {what}")
