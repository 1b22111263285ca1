"""Exports an artifact as a tar archive of an OCI image layout, which `oras cp --from-oci-layout` and `octet run` read.

Archives of the same artifact and reports are equal byte for byte. The size of an archive is known before the archive is
written.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from service.cache.layout import OciLayout
from service.cache.oci import INDEX_MEDIA_TYPE, LAYOUT_VERSION, Descriptor, Manifest
from service.core.digest import Digest

_CHUNK_BYTES = 1 << 18
_BLOCK_BYTES = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Archive:
    """An archive whose bytes are generated on demand by `chunks`.

    Attributes:
        size_bytes: the total size of all chunks.
    """

    members: tuple[tuple[str, bytes | Path, int], ...]  # name, content, size in bytes

    @property
    def size_bytes(self) -> int:
        return sum(_BLOCK_BYTES + _padded(size) for _, _, size in self.members) + 2 * _BLOCK_BYTES

    def chunks(self) -> Iterator[bytes]:
        for name, content, size_bytes in self.members:
            header = tarfile.TarInfo(name)
            header.size, header.mode = size_bytes, 0o644
            yield header.tobuf(tarfile.USTAR_FORMAT)
            yield from [content] if isinstance(content, bytes) else _read(content)
            yield bytes(_padded(size_bytes) - size_bytes)
        yield bytes(2 * _BLOCK_BYTES)


def export(layout: OciLayout, digest: Digest, reports: Container[str] | None = None) -> Archive:
    """Returns an archive of one manifest, its config and layers, and the reports about it. Verifies every blob first.

    Args:
        reports: the artifact types of the reports to include; None for all.

    Raises:
        NotFound, CorruptBlob: a blob is missing or damaged.
        InvalidInput: the blob `digest` is not a manifest.
    """
    manifest = layout.manifest(digest)
    listed = {entry.digest: entry for entry in layout.index()}
    subject = listed.get(digest) or Descriptor(
        "application/vnd.oci.image.manifest.v1+json", digest, layout.blobs.size_bytes(digest)
    )
    referrers = [entry for entry in layout.referrers(digest) if reports is None or entry.artifact_type in reports]
    entries = [_without_annotations(subject, manifest), *sorted(referrers, key=lambda each: each.artifact_type or "")]
    manifests = [manifest, *(layout.manifest(entry.digest) for entry in entries[1:])]
    parts = [part.digest for each in manifests for part in (each.config, *each.layers)]
    blobs = dict.fromkeys([*(entry.digest for entry in entries), *parts])
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_MEDIA_TYPE,
        "manifests": [entry.to_json() for entry in entries],
    }
    documents = {"oci-layout": {"imageLayoutVersion": LAYOUT_VERSION}, "index.json": index}
    members: list[tuple[str, bytes | Path, int]] = []
    for name, document in documents.items():
        data = json.dumps(document, indent=2, sort_keys=True).encode()
        members.append((name, data, len(data)))
    for blob in blobs:
        path = layout.blobs.path(blob)
        members.append((f"blobs/{blob.replace(':', '/')}", path, layout.blobs.size_bytes(blob)))
    return Archive(tuple(members))


def _without_annotations(entry: Descriptor, manifest: Manifest) -> Descriptor:
    """Returns the entry without annotations. The annotations name models of this server, and are useless elsewhere."""
    return Descriptor(entry.media_type, entry.digest, entry.size_bytes, artifact_type=manifest.artifact_type)


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
