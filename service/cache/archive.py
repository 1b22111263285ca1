"""Reads a tar archive of an OCI image layout without unpacking it. `export` or `tar -cf FILE -C DIR .` wrote the
archive.

The file is untrusted. So only the necessary parts of the format are accepted: headers of regular files and folders in
the ustar format (IEEE Std 1003.1-1988). Extension headers, links and sparse files are refused, sizes are checked, and
nothing is written to a path that the archive contains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from service.cache.oci import LAYOUT_VERSION, Descriptor
from service.core.digest import Digest, digest_of
from service.core.errors import DigestMismatch, InvalidInput, MalformedModel, NotFound

MAGIC = b"oci-layout\0"  # the first bytes of an archive that `export` wrote
_BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 20
_LARGEST_DOCUMENT_BYTES = 4 << 20  # the size that registries must accept by the OCI distribution specification
_MOST_MEMBERS = 4096
_NAMES = re.compile(r"(?:\./)?(oci-layout|index\.json|blobs/sha256/[0-9a-f]{64})")
_FILES, _FOLDER = (b"0", b"\0"), b"5"


class LayoutArchive:
    """The blobs and the index of an archived layout.

    Attributes:
        manifests: the entries of the index.

    Raises:
        MalformedModel: the file is not an archive of an OCI image layout.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._members = dict(_members(file, path.stat().st_size))
        try:
            version = json.loads(self._document("oci-layout")).get("imageLayoutVersion")
            index = json.loads(self._document("index.json"))
            self.manifests = [Descriptor.from_json(entry) for entry in index["manifests"]]
        except (ValueError, RecursionError, LookupError, AttributeError, TypeError, InvalidInput) as error:
            raise MalformedModel(f"the archive does not contain an OCI image layout: {error}") from error
        if version != LAYOUT_VERSION:
            raise MalformedModel(
                f"the archive has image layout version {version!r}, but only {LAYOUT_VERSION} is supported"
            )

    def read(self, digest: Digest) -> bytes:
        """Returns the bytes of a small blob: a manifest or a config.

        Raises:
            NotFound: the archive does not contain the blob.
            DigestMismatch: the blob's bytes do not match its name.
            MalformedModel: the blob is too large for a manifest or a config.
        """
        data = self._document(_name_of(digest))
        if digest_of(data) != digest:
            raise DigestMismatch(f"blob {digest} of the archive hashes to {digest_of(data)}", hint="send it again")
        return data

    def extract(self, blob: Descriptor, path: Path) -> None:
        """Writes a blob to `path`, which must not exist. Does not check the digest; see `core.digest.digest_of_file`.

        Raises:
            NotFound: the archive does not contain the blob.
            MalformedModel: the size of the blob differs from that in its descriptor.
        """
        offset, size_bytes = self._place(_name_of(blob.digest))
        if size_bytes != blob.size_bytes:
            raise MalformedModel(f"blob {blob.digest} of the archive has {size_bytes} bytes, not {blob.size_bytes}")
        with self._path.open("rb") as archive, path.open("xb") as file:
            archive.seek(offset)
            while size_bytes:
                chunk = archive.read(min(_CHUNK_BYTES, size_bytes))
                size_bytes -= len(chunk)
                file.write(chunk)

    def _document(self, name: str) -> bytes:
        offset, size_bytes = self._place(name)
        if size_bytes > _LARGEST_DOCUMENT_BYTES:
            raise MalformedModel(f"{name} of the archive has {size_bytes} bytes")
        with self._path.open("rb") as archive:
            archive.seek(offset)
            return archive.read(size_bytes)

    def _place(self, name: str) -> tuple[int, int]:
        try:
            return self._members[name]
        except KeyError:
            raise NotFound(f"the archive has no {name}") from None


def _members(file: BinaryIO, total_bytes: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yields the name of each regular file, with its offset and size in bytes."""
    offset = 0
    for _ in range(_MOST_MEMBERS):
        file.seek(offset)
        header = file.read(_BLOCK_BYTES)
        if not header.strip(b"\0"):  # the end: blocks of zeros, or nothing
            return
        kind, name, size_bytes = _parsed(header)
        begin = offset + _BLOCK_BYTES
        if begin + size_bytes > total_bytes:
            _malformed(f"ends in the middle of {name!r}")
        if kind in _FILES:
            known = _NAMES.fullmatch(name)
            if known is None:
                _malformed(f"contains {name!r}, which does not belong to an OCI image layout")
            yield known[1], (begin, size_bytes)
        elif kind != _FOLDER:
            _malformed(f"contains {name!r}, which is neither a file nor a folder")
        offset = begin + -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
    _malformed(f"contains more than {_MOST_MEMBERS} files")


def _parsed(header: bytes) -> tuple[bytes, str, int]:
    """Returns the type flag, the name and the size in bytes from a member's header."""
    if len(header) < _BLOCK_BYTES or header[257:262] != b"ustar":
        _malformed("is not a tar archive")
    stored = header[148:156].strip(b" \0")
    summed = sum(header[:148]) + sum(header[156:]) + 8 * ord(" ")
    if _octal(stored) != summed:
        _malformed("has a damaged header")
    name = header[:100].rstrip(b"\0").decode("ascii", "backslashreplace")
    if header[345:500].strip(b"\0") and header[257:263] == b"ustar\0":  # the prefix of a long name
        _malformed(f"contains {name!r} with a name prefix, which an OCI image layout does not need")
    return header[156:157], name, _octal(header[124:136].strip(b" \0"))


def _octal(digits: bytes) -> int:
    if not re.fullmatch(rb"[0-7]+", digits):
        _malformed("has a header that cannot be read")
    return int(digits, 8)


def _name_of(digest: Digest) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the archive {what}", hint="octet push DIR creates an archive from an artifact's folder")
