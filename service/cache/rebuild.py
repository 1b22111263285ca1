"""Rebuilds the index of a layout in a folder, after the index or the marker file was damaged.

The index lists manifests, which are blobs. The manifests are found again by reading every blob that is small enough to
be a manifest. The annotations, which include the names of models, are stored only in the index. `catalog.synchronize`
restores them from the database.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from service.cache.durable import locked, replace_file
from service.cache.index import Entry, Index, IndexFile
from service.cache.layout import LAYOUT_FILE, MARKER, check_version
from service.cache.local import LocalBlobStore
from service.cache.oci import (
    INDEX_MEDIA_TYPE,
    LARGEST_MANIFEST_BYTES,
    MANIFEST_MEDIA_TYPE,
    Descriptor,
    Manifest,
)
from service.core.digest import canonical_json
from service.core.errors import CorruptBlob, InvalidInput, NotFound, OctetError


def index_damage(root: Path) -> str:
    """Returns the problem with the index or the marker of the layout at `root`; empty if there is none."""
    try:
        Index(IndexFile(root)).descriptors()
        check_version((root / LAYOUT_FILE).read_bytes(), LAYOUT_FILE)
    except OctetError as error:
        return error.message
    except OSError as error:
        return f"{Path(os.fsdecode(error.filename)).name}: {error.strerror}"
    return ""


def move_aside(path: Path) -> Path:
    """Renames a damaged file or folder, so that it can be examined later. Returns its new path."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{now}")
    attempt = 0
    while aside.exists():
        attempt += 1
        aside = path.with_name(f"{path.name}.damaged-{now}-{attempt}")
    path.rename(aside)
    return aside


def rebuild_index(root: Path) -> list[Path]:
    """Writes an index that lists every manifest among the blobs, without annotations, and a marker.

    Returns:
        The new paths of the damaged files.
    """
    moved = []
    with locked(root):
        for name in ("index.json", LAYOUT_FILE):
            if os.path.lexists(root / name):
                moved.append(move_aside(root / name))
        document = {"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": list(_manifests(root))}
        replace_file(root / "index.json", canonical_json(document))
        replace_file(root / LAYOUT_FILE, MARKER)
    return moved


def _manifests(root: Path) -> Iterator[Entry]:
    blobs = LocalBlobStore(root, create=False)
    for digest in sorted(blobs.iterate()):
        try:
            size_bytes = blobs.size_bytes(digest)
            if size_bytes > LARGEST_MANIFEST_BYTES:
                continue
            manifest = Manifest.from_bytes(blobs.read(digest))
        except (NotFound, CorruptBlob, InvalidInput):
            continue
        yield Descriptor(MANIFEST_MEDIA_TYPE, digest, size_bytes, {}, manifest.artifact_type).to_json()
