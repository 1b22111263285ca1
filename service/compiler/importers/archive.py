"""Zip archives that uploads are: read record by record into memory, within limits, and never unpacked to disk."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from service.core.errors import MalformedModel

_MOST_RECORDS = 1 << 16
_LONGEST_NAME = 1 << 10
_LARGEST_DEFLATED_BYTES = 1 << 25  # one record: code, JSON
_MOST_DEFLATED_BYTES = 1 << 27  # all of them together
_ENCRYPTED = 1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Archive:
    """The records of an archive, by name.

    Raises:
        MalformedModel: it is not a zip file, or one that no framework writes: names that lead elsewhere, names twice,
            encryption, links, other compression, sizes that the file does not hold or that are absurd.
    """

    def __init__(
        self,
        data: bytes | Path,
        *,
        in_folder: bool = False,
        with_folders: bool = False,
        largest_deflated_bytes: int = _LARGEST_DEFLATED_BYTES,
        most_deflated_bytes: int = _MOST_DEFLATED_BYTES,
    ) -> None:
        """
        Args:
            data: the file's content; or its path, for one that may be larger than memory. It stays open.
            with_folders: records of folders are passed over, as those that people pack have them.
            in_folder: every record lies in one folder, as PyTorch writes them; names are those inside it.
            largest_deflated_bytes: of one compressed record, unpacked. Stored records are bounded by the file.
            most_deflated_bytes: of all compressed records together.
        """
        self.size_bytes = len(data) if isinstance(data, bytes) else data.stat().st_size
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else data)
        except (zipfile.BadZipFile, ValueError, OverflowError, EOFError, NotImplementedError, UnicodeError) as exc:
            raise MalformedModel(f"the zip archive cannot be read: {exc}") from exc
        self._largest_bytes, self._most_bytes = largest_deflated_bytes, most_deflated_bytes
        self._records = self._checked(in_folder, with_folders)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def size_of(self, name: str) -> int:
        """The size in bytes of what `read` returns for an existing record."""
        return self._records[name].file_size

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

    def _checked(self, in_folder: bool, with_folders: bool) -> dict[str, zipfile.ZipInfo]:
        infos = [info for info in self._zip.infolist() if not (with_folders and info.is_dir())]
        if not 0 < len(infos) <= _MOST_RECORDS:
            _malformed(f"has {len(infos)} records")
        records: dict[str, zipfile.ZipInfo] = {}
        stored = deflated = 0
        folder = infos[0].filename.split("/")[0] if in_folder else None
        for info in infos:
            name = _checked_name(info, folder)
            if name in records:
                _malformed(f"has the record {_shown(name)} twice")
            records[name] = info
            if info.compress_type == zipfile.ZIP_STORED:
                stored += info.file_size
                if info.file_size != info.compress_size:
                    _malformed(f"stores {_shown(name)} in another size than its own")
            else:
                deflated += info.file_size
                if info.file_size > self._largest_bytes:
                    _malformed(f"deflates {_shown(name)} from {info.file_size} bytes")
        if stored > self.size_bytes:
            _malformed(f"of {self.size_bytes} bytes says that it holds {stored}")
        if deflated > self._most_bytes:
            _malformed(f"unpacks to {deflated} bytes")
        return records


def _checked_name(info: zipfile.ZipInfo, folder: str | None) -> str:
    """The record's name, inside `folder` if there is one."""
    name = info.filename
    parts = name.split("/")
    if len(name) > _LONGEST_NAME or not name.isprintable() or "\\" in name or ":" in name:
        _malformed(f"has a record of the name {_shown(name)}")
    if any(part in ("", ".", "..") for part in parts) or (folder is not None and parts[:-1][:1] != [folder]):
        _malformed(f"has the record {_shown(name)}, which leads out of its folder")
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
        _malformed(f"encrypts {_shown(name)}, or compresses it in an unknown way")
    if stat.S_ISLNK(info.external_attr >> 16):
        _malformed(f"has a link as {_shown(name)}")
    return name if folder is None else "/".join(parts[1:])


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 200 else name[:199] + "…")


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the zip archive {what}")
