"""The index of a layout: the only document in it that changes.

Entries are kept as JSON values. So members that other tools wrote survive changes, and an index with thousands of
entries is read and written in milliseconds.
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

Entry = dict[str, Any]  # a descriptor: mediaType, digest, size, and any other members


class Document(Protocol):
    """The interface to the stored bytes of the index, in a file or in a bucket."""

    def lock(self) -> AbstractContextManager[None]:
        """Returns the lock against all other threads and processes that share the layout."""

    def read(self, is_locked: bool = False) -> bytes | None:
        """Returns the bytes of the index; None if it does not exist.

        If the store is unreachable and the lock is not held, this method may return the bytes that were read last.
        """

    def replace(self, data: bytes) -> None:
        """Replaces the index. The caller must hold the lock, and must have read the old index after acquiring the
        lock.
        """


class IndexFile:
    """The index in the file `root/index.json`."""

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
    """The entries and annotations of the index. All changes are made within a `change…` context."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the layout's lock, so that no other process can change the index or collect garbage.

        It first reads the current index, so that later reads within the lock do not use an older one.

        Raises:
            CorruptBlob: as in `read`.
        """
        with self._document.lock():
            self._bytes(is_locked=True)
            yield

    def create(self) -> None:
        """Writes an empty index if there is none. The caller must hold the layout's lock."""
        if self._document.read(is_locked=True) is None:
            document = {"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": []}
            self._document.replace(canonical_json(document))

    def read(self) -> list[Entry]:
        """Returns a consistent snapshot of the entries. Needs no lock.

        Raises:
            CorruptBlob: the index is missing, or is not an OCI index.
        """
        entries: list[Entry] = self._parsed(self._bytes())["manifests"]
        return entries

    def descriptors(self) -> list[Descriptor]:
        """Returns the entries as descriptors. Raises `CorruptBlob` as in `read`."""
        try:
            return [Descriptor.from_json(entry) for entry in self.read()]
        except InvalidInput as error:
            raise self._corrupt() from error

    def annotations(self) -> dict[str, str]:
        """Returns the annotations of the index itself. Raises `CorruptBlob` as in `read`."""
        try:
            return annotations_from_json(self._parsed(self._bytes()).get("annotations"))
        except InvalidInput as error:
            raise self._corrupt() from error

    @contextmanager
    def change(self) -> Iterator[list[Entry]]:
        """Yields the entries for changes in place. The entries are written when the block ends without an exception.

        The layout's lock is held during the block, so no other process can change the index or collect garbage.

        Raises:
            CorruptBlob: as in `read`.
        """
        with self.change_document() as document:
            yield document["manifests"]

    @contextmanager
    def change_annotations(self) -> Iterator[dict[str, str]]:
        """Yields the annotations of the index for changes in place, like `change`."""
        with self.change_document() as document:
            annotations: dict[str, str] = document.setdefault("annotations", {})
            yield annotations
            if not annotations:
                del document["annotations"]

    @contextmanager
    def change_document(self) -> Iterator[dict[str, Any]]:
        """Yields the whole index for changes in place, like `change`."""
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
            "index.json of the store is missing or not an OCI index",
            hint="octet doctor --repair rebuilds it from the database, unless that is damaged too",
        )


def entry_of(entries: list[Entry], digest: Digest) -> Entry | None:
    return next((entry for entry in entries if entry["digest"] == digest), None)


def _is_descriptor(entry: Any) -> bool:
    """Returns true if the members that `layout` uses have the right types. `Descriptor.from_json` checks more."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("mediaType"), str)
        and isinstance(entry.get("digest"), str)
        and isinstance(entry.get("size"), int)
        and isinstance(entry.get("annotations", {}), dict)
    )
