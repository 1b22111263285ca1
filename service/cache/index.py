"""The index of a layout, the one document of it that changes.

Entries are kept as the JSON that they are: members which other tools wrote outlive our changes, and an index of
thousands of entries is read and written in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from service.cache.durable import locked, replace_file
from service.cache.oci import INDEX_MEDIA_TYPE, Descriptor, annotations_from_json
from service.core.digest import Digest, canonical_json
from service.core.errors import CorruptBlob, InvalidInput

Entry = dict[str, Any]  # a descriptor: mediaType, digest, size, and what else there is


class Document(Protocol):
    """Where the index is."""

    def lock(self) -> AbstractContextManager[None]:
        """Held against every other thread and process that shares the layout."""

    def read(self, is_locked: bool = False) -> bytes | None:
        """What was written last; None if there is nothing. Without the lock it may be what was seen last instead,
        where the store cannot be reached.
        """

    def replace(self, data: bytes) -> None:
        """The lock is held, and what is replaced was read meanwhile."""


class IndexFile:
    """`root/index.json`."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / "index.json"

    def lock(self) -> AbstractContextManager[None]:
        return locked(self._root)

    def read(self, is_locked: bool = False) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, data: bytes) -> None:
        replace_file(self._path, data)


class Index:
    """The entries of the index; `change` is the only way to write it."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The layout's lock: no other process changes the index or collects garbage meanwhile, and what is read is not
        what was seen earlier. Raises as `read` does.
        """
        with self._document.lock():
            self._bytes(is_locked=True)
            yield

    def create(self) -> None:
        """Writes an empty index where there is none. The caller holds the layout's lock."""
        if self._document.read(is_locked=True) is None:
            document = {"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": []}
            self._document.replace(canonical_json(document))

    def read(self) -> list[Entry]:
        """A consistent snapshot; needs no lock.

        Raises:
            CorruptBlob: the file is not an OCI index.
        """
        entries: list[Entry] = self._parsed(self._bytes())["manifests"]
        return entries

    def descriptors(self) -> list[Descriptor]:
        """`read`, as values. Raises as `read` does."""
        try:
            return [Descriptor.from_json(entry) for entry in self.read()]
        except InvalidInput as error:
            raise self._corrupt() from error

    def annotations(self) -> dict[str, str]:
        """The annotations of the index itself. Raises as `read` does."""
        try:
            return annotations_from_json(self._parsed(self._bytes()).get("annotations"))
        except InvalidInput as error:
            raise self._corrupt() from error

    @contextmanager
    def change(self) -> Iterator[list[Entry]]:
        """The entries, to be changed in place; written when the block ends without an exception.

        The layout's lock is held meanwhile: no other process changes the index or collects garbage. Raises as `read`
        does.
        """
        with self.change_document() as document:
            yield document["manifests"]

    @contextmanager
    def change_annotations(self) -> Iterator[dict[str, str]]:
        """As `change`, for the annotations of the index itself."""
        with self.change_document() as document:
            annotations: dict[str, str] = document.setdefault("annotations", {})
            yield annotations
            if not annotations:
                del document["annotations"]

    @contextmanager
    def change_document(self) -> Iterator[dict[str, Any]]:
        """As `change`, for the whole of it."""
        with self._document.lock():
            before = self._bytes(is_locked=True)
            document = self._parsed(before)
            yield document
            after = canonical_json(document)
            if after != before:
                self._document.replace(after)

    def _bytes(self, is_locked: bool = False) -> bytes:
        data = self._document.read(is_locked)
        if data is None:
            raise self._corrupt()
        return data

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            document = json.loads(data)
        except ValueError as error:
            raise self._corrupt() from error
        if not isinstance(document, dict) or not isinstance(entries := document.get("manifests"), list):
            raise self._corrupt()
        if not all(map(_is_descriptor, entries)) or not isinstance(document.get("annotations", {}), dict):
            raise self._corrupt()
        return document

    def _corrupt(self) -> CorruptBlob:
        return CorruptBlob(
            "index.json of the store is gone or not an OCI index",
            hint="octet doctor --repair rebuilds it from the database, if that is not damaged, too",
        )


def entry_of(entries: list[Entry], digest: Digest) -> Entry | None:
    return next((entry for entry in entries if entry["digest"] == digest), None)


def _is_descriptor(entry: Any) -> bool:
    """As far as `layout` relies on it; `Descriptor.from_json` looks closer."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("mediaType"), str)
        and isinstance(entry.get("digest"), str)
        and isinstance(entry.get("size"), int)
        and isinstance(entry.get("annotations", {}), dict)
    )
