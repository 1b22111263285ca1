"""An OCI image layout: blobs, and an index that lists the manifests among them.

https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from service.cache.bucket import Bucket
from service.cache.bucket_index import BucketIndex
from service.cache.durable import locked, replace_file
from service.cache.garbage import MIN_AGE_S, Collected, collect
from service.cache.index import Entry, Index, IndexFile, entry_of
from service.cache.local import LocalBlobStore
from service.cache.oci import (
    EMPTY_BYTES,
    EMPTY_MEDIA_TYPE,
    LAYOUT_VERSION,
    MANIFEST_MEDIA_TYPE,
    Descriptor,
    Manifest,
    check_manifest_size,
)
from service.cache.remote import BucketBlobStore
from service.cache.store import BlobStore
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound, StoreUnreachable

_logger = logging.getLogger(__name__)
LAYOUT_FILE = "oci-layout"
MARKER = json.dumps({"imageLayoutVersion": LAYOUT_VERSION}).encode()

Annotations = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Annotations of an index entry, or a function that returns them. The function is called while the index is locked, so
that the state it reads cannot change before the annotations are written."""


@dataclass
class IndexAnnotations:
    """The index in the form that `OciLayout.rewrite` passes to its callback. The callback changes this object in place.

    Attributes:
        own: the annotations of the index itself.
        entries: each listed manifest with its annotations. Only the annotations may be changed.
        removed: manifests to remove from the list. The reports about them stay listed.
    """

    own: dict[str, str]
    entries: list[tuple[Descriptor, dict[str, str]]]
    removed: set[Digest] = field(default_factory=set)


class OciLayout:
    """A folder or a bucket of content-addressed artifacts. Several threads and processes may use it at the same time.

    The manifests in the index, and the blobs that they refer to, are kept. All other blobs are garbage once they are
    old enough. Reports about a manifest ("referrers") are listed in the index like the manifest itself.

    Attributes:
        root: the folder; for a bucket, the folder of this machine's cache.
        blobs: all stored blobs.
    """

    def __init__(self, root: Path, *, create: bool = True) -> None:
        """Opens the layout at `root`, and creates it first if it does not exist.

        Raises:
            NotFound: the layout does not exist, and `create` is false.
            InvalidInput: the layout has an unsupported version.
            CorruptBlob: the layout's index is missing. A new index would be empty, and all blobs would become garbage.
            StorageFull: no space is left.
        """
        marker = root / LAYOUT_FILE
        if not create and not marker.is_file():
            raise NotFound(f"{root} is not an OCI image layout: it has no {LAYOUT_FILE}")
        self._set(root, LocalBlobStore(root, create=create), Index(IndexFile(root)))
        if create:
            with locked(root):
                if not marker.exists():
                    self._index.create()
                    replace_file(marker, MARKER)
        check_version(marker.read_bytes(), str(marker))
        self._index.descriptors()

    def _set(self, root: Path, blobs: BlobStore, index: Index) -> None:
        self.root, self.blobs, self._index = root, blobs, index
        self._subjects: dict[Digest, Digest | None] = {}

    @classmethod
    def in_bucket(
        cls, bucket: Bucket, cache: Path, cache_bytes: int, lock: AbstractContextManager[None] | None = None
    ) -> OciLayout:
        """Opens the layout in a bucket, and creates it first if it does not exist.

        While the bucket is unreachable, cached blobs and the cached index are used.

        Args:
            cache: a folder on this machine; see `BucketBlobStore`.
            lock: the lock of all processes that share the bucket; by default, of those on this machine.

        Raises:
            StoreUnreachable: the bucket does not respond, and this machine has never read its index.
            InvalidInput, CorruptBlob: as in `__init__`.
        """
        layout = cls.__new__(cls)
        blobs = BucketBlobStore(bucket, cache, cache_bytes)
        marker = cache / LAYOUT_FILE
        document = BucketIndex(bucket, lambda: lock or locked(cache), cache / "index.json")
        index = Index(document)
        layout._set(cache, blobs, index)
        try:
            if bucket.head(LAYOUT_FILE) is None:
                with document.lock():
                    if bucket.create(LAYOUT_FILE, MARKER):
                        index.create()
            content = b"".join(bucket.get(LAYOUT_FILE))
            check_version(content, f"{LAYOUT_FILE} of the bucket")
            replace_file(marker, content)
        except StoreUnreachable:
            if not marker.exists():
                raise
        index.descriptors()
        return layout

    def lock(self) -> AbstractContextManager[None]:
        """Returns the layout's lock. While it is held, no other process can change the index or collect garbage."""
        return self._index.lock()

    @classmethod
    def open(cls, root: Path) -> OciLayout:
        """Opens the layout at `root`, which must exist and may be on a read-only file system.

        Raises:
            NotFound, InvalidInput, CorruptBlob: as in `__init__`.
        """
        return cls(root, create=False)

    def put_blob_descriptor(self, media_type: str, content: bytes | Path) -> Descriptor:
        """Stores bytes, or moves a file into the store (`BlobStore.put_file`). Returns the descriptor of the blob."""
        digest = self.blobs.put_file(content) if isinstance(content, Path) else self.blobs.put_bytes(content)
        return Descriptor(media_type, digest, self.blobs.size_bytes(digest))

    def put_manifest(self, manifest: Manifest, index_annotations: Annotations | None = None) -> Descriptor:
        """Stores `manifest` and lists it in the index. If the manifest is listed already, merges the annotations into
        its entry.

        Raises:
            NotFound: the manifest refers to a blob that is not stored.
            StorageFull: no space is left.
        """
        with self._index.change() as entries:
            return self._put(entries, manifest, _resolve_annotations(index_annotations or {}))

    def manifest(self, digest: Digest) -> Manifest:
        """Returns the manifest with this digest, even if the index does not list it.

        Raises:
            NotFound, CorruptBlob: as in `BlobStore.read`.
            InvalidInput: the blob is not a manifest, or is too large for one. A blob that is too large is not read.
        """
        check_manifest_size(self.blobs.path(digest).stat().st_size, f"blob {digest}")
        return Manifest.from_bytes(self.blobs.read(digest))

    def index(self) -> list[Descriptor]:
        """Returns the descriptors of all listed manifests, with annotations, in the order in which they were put."""
        return self._index.descriptors()

    def annotate(self, digest: Digest, annotations: Annotations) -> None:
        """Merges `annotations` into the index entry of a manifest.

        Raises:
            NotFound: there are annotations, but the manifest is not listed.
        """
        with self._index.change() as entries:
            if found := _resolve_annotations(annotations):
                _annotate(_find_listed(entries, digest), found)

    def rewrite(self, change: Callable[[IndexAnnotations], None]) -> None:
        """Changes the annotations of the index and of all its entries in one atomic write.

        The layout's lock is held while `change` runs. If `change` raises, the index does not change.
        """
        with self._index.change_document() as document:
            own, entries = document.setdefault("annotations", {}), document["manifests"]
            listed = [(Descriptor.from_json(entry), dict(entry.get("annotations", {}))) for entry in entries]
            index = IndexAnnotations(own, listed)
            change(index)
            for entry, (_, annotations) in zip(entries, listed, strict=True):
                entry.pop("annotations", None)
                _annotate(entry, annotations)
            entries[:] = [entry for entry in entries if entry["digest"] not in index.removed]
            if not own:
                del document["annotations"]

    def annotations(self) -> dict[str, str]:
        """Returns the annotations of the index itself, which do not belong to a manifest."""
        return self._index.annotations()

    def change_annotations(self) -> AbstractContextManager[dict[str, str]]:
        """Yields the annotations of the index for changes in place. The annotations are written atomically when the
        block ends without an exception.
        """
        return self._index.change_annotations()

    def remove(self, digest: Digest) -> None:
        """Removes a manifest and the reports about it from the index. Their blobs become garbage."""
        with self._index.change() as entries:
            self._remove(entries, {digest})

    def remove_unwanted(self, is_unwanted: Callable[[Descriptor], bool], min_age_s: float) -> None:
        """Removes every manifest for which `is_unwanted` returns true and that was last put at least `min_age_s` ago.

        The age protects manifests that were listed but not annotated yet. The index is locked while `is_unwanted` is
        called.
        """
        with self._index.change() as entries:
            listed = [Descriptor.from_json(entry) for entry in entries]
            unwanted = [entry.digest for entry in listed if is_unwanted(entry)]
            self._remove(entries, {digest for digest in unwanted if self._is_older(digest, min_age_s)})

    def attach(
        self,
        subject: Digest,
        artifact_type: str,
        data: bytes,
        annotations: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> Digest:
        """Stores `data` as the report of this type about a listed manifest. Replaces an earlier report.

        Args:
            media_type: the media type of `data`; by default `artifact_type`.

        Returns:
            The digest of the referrer's manifest.

        Raises:
            NotFound: `subject` is not listed.
            StorageFull: no space is left.
        """
        config = self.put_blob_descriptor(EMPTY_MEDIA_TYPE, EMPTY_BYTES)
        layer = self.put_blob_descriptor(media_type or artifact_type, data)
        with self._index.change() as entries:
            about = _find_listed(entries, subject)
            reference = Descriptor(about["mediaType"], subject, about["size"])
            referrer = Manifest(artifact_type, config, (layer,), annotations or {}, reference)
            entries[:] = [entry for entry in entries if not self._is_about(entry, {subject}, artifact_type)]
            return self._put(entries, referrer, {}).digest

    def attached(self, subject: Digest, artifact_type: str) -> bytes | None:
        """Returns the report of this type about `subject`; None if there is none. Raises `CorruptBlob`."""
        content = self._content(subject, artifact_type)
        return None if content is None else self.blobs.read(content)

    def attached_file(self, subject: Digest, artifact_type: str) -> Path | None:
        """Returns the path of the report that `attached` returns. The file must not be changed."""
        content = self._content(subject, artifact_type)
        return None if content is None else self.blobs.path(content)

    def contents(self, subject: Digest, artifact_type: str) -> list[Digest]:
        """Returns the blobs of the reports of this type about `subject`: one blob if `attach` wrote the report, perhaps
        more if another tool did.
        """
        found = [entry["digest"] for entry in self._index.read() if self._is_about(entry, {subject}, artifact_type)]
        return [layer.digest for report in found for layer in self.manifest(report).layers[:1]]

    def _content(self, subject: Digest, artifact_type: str) -> Digest | None:
        return next(iter(self.contents(subject, artifact_type)), None)

    def referrers(self, subject: Digest) -> list[Descriptor]:
        """Returns the listed manifests that are reports about `subject`."""
        return [Descriptor.from_json(entry) for entry in self._index.read() if self._is_about(entry, {subject})]

    def collect_garbage(self, roots: Iterable[Digest] = (), min_age_s: float = MIN_AGE_S) -> Collected:
        """Deletes every blob that is older than `min_age_s` and not reachable from the index or from `roots`.

        The age protects blobs that a build has stored but not listed yet. Blobs that are still being written are never
        deleted.
        """
        with self._index.change() as entries:  # locked, so that nothing is listed between the check and the deletion
            return collect(self.blobs, [*(entry["digest"] for entry in entries), *roots], min_age_s)

    def _remove(self, entries: list[Entry], digests: Collection[Digest]) -> None:
        doomed = set(digests)
        while found := {entry["digest"] for entry in entries if self._is_about(entry, doomed)} - doomed:
            doomed |= found
        entries[:] = [entry for entry in entries if entry["digest"] not in doomed]

    def _is_older(self, digest: Digest, age_s: float) -> bool:
        try:
            return self.blobs.age_s(digest) >= age_s
        except NotFound:
            return True

    def _put(self, entries: list[Entry], manifest: Manifest, annotations: Mapping[str, str]) -> Descriptor:
        for descriptor in (manifest.config, *manifest.layers):
            if not self.blobs.exists(descriptor.digest):
                raise NotFound(f"a manifest refers to blob {descriptor.digest}, which is not stored")
        data = manifest.to_bytes()
        digest = self.blobs.put_bytes(data)
        entry = entry_of(entries, digest)
        if entry is None:
            entry = Descriptor(MANIFEST_MEDIA_TYPE, digest, len(data), {}, manifest.artifact_type).to_json()
            entries.append(entry)
        _annotate(entry, annotations)
        return Descriptor.from_json(entry)

    def _is_about(self, entry: Entry, subjects: Container[Digest], artifact_type: str | None = None) -> bool:
        """Returns true if the entry is a report (of this type) about one of `subjects`; false if it is damaged."""
        if entry["mediaType"] != MANIFEST_MEDIA_TYPE or artifact_type not in (None, entry.get("artifactType")):
            return False
        digest = entry["digest"]
        if digest not in self._subjects:  # read once, because the content of a digest never changes
            try:
                subject = self.manifest(digest).subject
            except (NotFound, CorruptBlob, InvalidInput) as error:
                _logger.warning("manifest %s in the index: %s", digest, error)
                return False
            self._subjects[digest] = None if subject is None else subject.digest
        return self._subjects[digest] is not None and self._subjects[digest] in subjects


def check_version(data: bytes, marker: str) -> None:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise InvalidInput(f"{marker} is not JSON") from error
    version = content.get("imageLayoutVersion") if isinstance(content, dict) else None
    if version != LAYOUT_VERSION:
        raise InvalidInput(f"{marker}: image layout version {version!r}, but only {LAYOUT_VERSION} is known")


def _find_listed(entries: list[Entry], digest: Digest) -> Entry:
    entry = entry_of(entries, digest)
    if entry is None:
        raise NotFound(f"there is no manifest {digest} in the index")
    return entry


def _resolve_annotations(annotations: Annotations) -> Mapping[str, str]:
    return annotations() if callable(annotations) else annotations


def _annotate(entry: Entry, annotations: Mapping[str, str]) -> None:
    if annotations:
        entry["annotations"] = {**entry.get("annotations", {}), **annotations}
