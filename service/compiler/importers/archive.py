"""Reads zip archives that were uploaded, record by record into memory, within limits; nothing is unpacked to disk.
Writes the archives of models that consist of two files.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from service.core.errors import MalformedModel

_MOST_RECORDS = 1 << 16
_LONGEST_NAME = 1 << 10
_LARGEST_DEFLATED_BYTES = 1 << 25  # the limit for one record; compressed records contain code and JSON
_MOST_DEFLATED_BYTES = 1 << 27  # the limit for all records together
_CHUNK_BYTES = 1 << 20
_ENCRYPTED = 1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def pack_records(records: Mapping[str, bytes]) -> bytes:
    """Returns an archive of records by name. It depends only on their names and bytes, so that one model has one
    digest.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # a default ZipInfo has a fixed time and no owner
    return packed.getvalue()


class Archive:
    """The records of a zip archive, by name.

    Raises:
        MalformedModel: the file is not a zip archive as a framework writes it: it is damaged, or has names outside of
            the folder, duplicate names, encryption, links, another compression method, or sizes that are impossible or
            exceed the limits.
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
            data: the file's content. For a file that may be larger than memory, the file's path; the file then stays
                open.
            with_folders: accept records of folders and skip them. Archives that people pack contain such records.
            in_folder: all records must be in one folder, as in PyTorch's archives. Names are then relative to it.
            largest_deflated_bytes: the largest size of one compressed record after unpacking. Uncompressed records
                cannot be larger than the file.
            most_deflated_bytes: the largest size of all compressed records together, after unpacking.
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
        """Returns the bytes of a record.

        Raises:
            MalformedModel: the record does not exist, or is damaged.
        """
        if name not in self._records:
            _malformed(f"does not contain the record {_quoted(name)}")
        info = self._records[name]
        try:
            with self._zip.open(info) as record:
                data = record.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, NotImplementedError) as exc:
            raise MalformedModel(f"the record {_quoted(name)} of the archive is damaged: {exc}") from exc
        if len(data) != info.file_size:
            _malformed(f"declares {info.file_size} bytes for {_quoted(name)}, which has another size")
        return data

    def unpack(self, name: str, target: Path) -> None:
        """Writes a record to the file `target`, which must not exist.

        Raises:
            MalformedModel: the record does not exist, or is damaged.
        """
        if name not in self._records:
            _malformed(f"does not contain the record {_quoted(name)}")
        info, size_bytes = self._records[name], 0
        try:
            with self._zip.open(info) as record, target.open("xb") as file:
                while chunk := record.read(_CHUNK_BYTES):
                    size_bytes += len(chunk)
                    if size_bytes > info.file_size:
                        break
                    file.write(chunk)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as exc:
            raise MalformedModel(f"the record {_quoted(name)} of the archive is damaged: {exc}") from exc
        if size_bytes != info.file_size:
            _malformed(f"declares {info.file_size} bytes for {_quoted(name)}, which has another size")

    def text(self, name: str) -> str:
        """Returns a record as UTF-8 text.

        Raises:
            MalformedModel: the record does not exist, or is not UTF-8.
        """
        try:
            return self.read(name).decode()
        except UnicodeDecodeError as exc:
            raise MalformedModel(f"the record {_quoted(name)} of the archive is not UTF-8") from exc

    def _checked(self, in_folder: bool, with_folders: bool) -> dict[str, zipfile.ZipInfo]:
        infos = [info for info in self._zip.infolist() if not (with_folders and info.is_dir())]
        if not 0 < len(infos) <= _MOST_RECORDS:
            _malformed(f"has {len(infos)} records, not 1 to {_MOST_RECORDS}")
        records: dict[str, zipfile.ZipInfo] = {}
        stored = deflated = 0
        folder = infos[0].filename.split("/")[0] if in_folder else None
        for info in infos:
            name = _checked_name(info, folder)
            if name in records:
                _malformed(f"contains the record {_quoted(name)} twice")
            records[name] = info
            if info.compress_type == zipfile.ZIP_STORED:
                stored += info.file_size
                if info.file_size != info.compress_size:
                    _malformed(f"stores {_quoted(name)} uncompressed, but with two different sizes")
            else:
                deflated += info.file_size
                if info.file_size > self._largest_bytes:
                    _malformed(
                        f"has the compressed record {_quoted(name)} of {info.file_size} bytes, which is too large"
                    )
        if stored > self.size_bytes:
            _malformed(f"declares {stored} bytes of stored records, but has only {self.size_bytes} bytes")
        if deflated > self._most_bytes:
            _malformed(f"unpacks to {deflated} bytes, which is too large")
        return records


def _checked_name(info: zipfile.ZipInfo, folder: str | None) -> str:
    """Returns the record's name, relative to `folder` if one is given."""
    name = info.filename
    parts = name.split("/")
    if len(name) > _LONGEST_NAME or not name.isprintable() or "\\" in name or ":" in name:
        _malformed(f"has a record with the invalid name {_quoted(name)}")
    if any(part in ("", ".", "..") for part in parts) or (folder is not None and parts[:-1][:1] != [folder]):
        _malformed(f"has the record {_quoted(name)}, which is outside of its folder")
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
        _malformed(f"has the record {_quoted(name)} with encryption or an unknown compression method")
    if stat.S_ISLNK(info.external_attr >> 16):
        _malformed(f"has the record {_quoted(name)}, which is a link")
    return name if folder is None else "/".join(parts[1:])


def _quoted(name: str) -> str:
    return ascii(name if len(name) <= 200 else name[:199] + "…")


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the zip archive {what}")
