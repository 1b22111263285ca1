"""`index.json`, the one file of a layout that changes.

Entries are kept as the JSON that they are, so that members which other tools wrote outlive our changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.cache.durable import locked, replace_file
from service.cache.oci import INDEX_MEDIA_TYPE, Descriptor
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput

Entry = dict[str, Any]


class Index:
    """The entries of `root/index.json`; `change` is the only way to write it."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / "index.json"

    def create(self) -> None:
        """Writes an empty index where there is none. The caller holds the layout's lock."""
        if not self._path.exists():
            self._write({"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": []})

    def read(self) -> list[Descriptor]:
        """A consistent snapshot; needs no lock.

        Raises:
            CorruptBlob: the file is not an OCI index.
        """
        try:
            return [Descriptor.from_json(entry) for entry in self._load()["manifests"]]
        except InvalidInput as error:
            raise self._corrupt() from error

    @contextmanager
    def change(self) -> Iterator[list[Entry]]:
        """The entries, to be changed in place; written when the block ends without an exception.

        The layout's lock is held meanwhile: nobody else changes the index or collects garbage. Raises as `read` does.
        """
        with locked(self._root):
            document = self._load()
            before = json.dumps(document["manifests"])
            yield document["manifests"]
            if json.dumps(document["manifests"]) != before:
                self._write(document)

    def _load(self) -> dict[str, Any]:
        try:
            document = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError) as error:
            raise self._corrupt() from error
        if not isinstance(document, dict) or not isinstance(document.get("manifests"), list):
            raise self._corrupt()
        return document

    def _write(self, document: Mapping[str, Any]) -> None:
        replace_file(self._path, json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode())

    def _corrupt(self) -> CorruptBlob:
        return CorruptBlob(
            f"{self._path.name} of the store is gone or not an OCI index",
            hint="restore the file; the blobs are not affected",
        )


def entry_of(entries: list[Entry], digest: Digest) -> Entry | None:
    return next((entry for entry in entries if entry["digest"] == digest), None)
