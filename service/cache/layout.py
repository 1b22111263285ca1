"""An OCI image layout: blobs, and an index that names the manifests among them.

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
_LAYOUT_VERSION = "1.0.0"
MARKER = json.dumps({"imageLayoutVersion": _LAYOUT_VERSION}).encode()

Annotations = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Of an entry in the index; a function is called while the index is locked, so that what it reads is still so when it
is written."""


@dataclass
class IndexAnnotations:
    """The index as `OciLayout.rewrite` hands it to its callback, to be changed in place.

    Attributes:
        own: annotations of the index itself.
        entries: each listed manifest, as it is, and its annotations, to be changed in place.
        removed: manifests that are to be listed no more, besides the reports about them, which stay.
    """

    own: dict[str, str]
    entries: list[tuple[Descriptor, dict[str, str]]]
    removed: set[Digest] = field(default_factory=set)


class OciLayout:
    """A folder or a bucket of content-addressed artifacts. Safe between threads and processes that share it.

    What the index lists, and what that refers to, is kept; everything else is garbage once it is old enough.
    Reports about a manifest ("referrers") are listed in the index like the manifest itself.

    Attributes:
        root: the folder; of a bucket, that of this machine's cache.
        blobs: everything that is stored.
    """

    def __init__(self, root: Path, *, create: bool = True) -> None:
        """Opens the layout at `root`, making it where there is none.

        Raises:
            NotFound: there is none, and `create` is false.
            InvalidInput: it is of a version that we do not know.
            CorruptBlob: its index is gone. It is not made anew, or all blobs would be garbage.
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
        """The layout in a bucket, making it where there is none. What was seen of it before is served from the cache
        where the bucket does not answer.

        Args:
            cache: a folder of this machine; see `BucketBlobStore`.
            lock: one for all processes that share the bucket; by default, for those of this machine.

        Raises:
            StoreUnreachable: the bucket does not answer, and this machine has seen nothing of it.
            InvalidInput, CorruptBlob: as `__init__`.
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
            said = b"".join(bucket.get(LAYOUT_FILE))
            check_version(said, f"{LAYOUT_FILE} of the bucket")
            replace_file(marker, said)
        except StoreUnreachable:
            if not marker.exists():
                raise
        index.descriptors()
        return layout

    def lock(self) -> AbstractContextManager[None]:
        """While it is held, no other process changes the index or collects garbage. It is held once at a time."""
        return self._index.lock()

    @classmethod
    def open(cls, root: Path) -> OciLayout:
        """The layout at `root`, which must exist and may be on a read-only file system. Raises as `__init__` does."""
        return cls(root, create=False)

    def put_blob_descriptor(self, media_type: str, content: bytes | Path) -> Descriptor:
        """Stores bytes, or takes a file over as `BlobStore.put_file` does; what a manifest says about them."""
        digest = self.blobs.put_file(content) if isinstance(content, Path) else self.blobs.put_bytes(content)
        return Descriptor(media_type, digest, self.blobs.size_bytes(digest))

    def put_manifest(self, manifest: Manifest, index_annotations: Annotations | None = None) -> Descriptor:
        """Stores `manifest` and lists it. If it is listed already, the annotations are merged into its entry.

        Raises:
            NotFound: it refers to a blob that is not stored.
            StorageFull: no space is left.
        """
        with self._index.change() as entries:
            return self._put(entries, manifest, _told(index_annotations or {}))

    def manifest(self, digest: Digest) -> Manifest:
        """The manifest with this digest, listed or not.

        Raises:
            NotFound, CorruptBlob: as `BlobStore.read` does.
            InvalidInput: the blob is not a manifest, or too large for one; then it is not read.
        """
        check_manifest_size(self.blobs.path(digest).stat().st_size, f"blob {digest}")
        return Manifest.from_bytes(self.blobs.read(digest))

    def index(self) -> list[Descriptor]:
        """Every listed manifest, in the order in which they were put, with the annotations of its entry."""
        return self._index.descriptors()

    def annotate(self, digest: Digest, annotations: Annotations) -> None:
        """Merges `annotations` into the index entry of a listed manifest. Raises `NotFound`, if there are any."""
        with self._index.change() as entries:
            if found := _told(annotations):
                _annotate(_listed(entries, digest), found)

    def rewrite(self, change: Callable[[IndexAnnotations], None]) -> None:
        """Has all annotations changed at once, those of the index itself and of its entries: written whole or not.

        No other process changes the index or collects garbage meanwhile. If `change` raises, the index stays as it was.
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
        """The annotations of the index itself, which are about no manifest."""
        return self._index.annotations()

    def change_annotations(self) -> AbstractContextManager[dict[str, str]]:
        """The same, to be changed in place; written, all at once, when the block ends without an exception."""
        return self._index.change_annotations()

    def remove(self, digest: Digest) -> None:
        """Takes a manifest and the reports about it from the index, if it is listed; the blobs become garbage."""
        with self._index.change() as entries:
            self._remove(entries, {digest})

    def remove_unwanted(self, is_unwanted: Callable[[Descriptor], bool], min_age_s: float) -> None:
        """`remove`s every manifest that is not wanted, and was last put at least so long ago.

        The age protects what was listed, and is yet to be annotated. `is_unwanted` is called while the index is locked.
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
        """Stores `data` as the report of this type about a listed manifest, in place of an earlier one.

        Args:
            media_type: of `data`; by default, `artifact_type`.

        Returns:
            The digest of the referrer's manifest.

        Raises:
            NotFound: `subject` is not listed.
            StorageFull: no space is left.
        """
        config = self.put_blob_descriptor(EMPTY_MEDIA_TYPE, EMPTY_BYTES)
        layer = self.put_blob_descriptor(media_type or artifact_type, data)
        with self._index.change() as entries:
            about = _listed(entries, subject)
            reference = Descriptor(about["mediaType"], subject, about["size"])
            referrer = Manifest(artifact_type, config, (layer,), annotations or {}, reference)
            entries[:] = [entry for entry in entries if not self._is_about(entry, {subject}, artifact_type)]
            return self._put(entries, referrer, {}).digest

    def attached(self, subject: Digest, artifact_type: str) -> bytes | None:
        """The report of this type about `subject`, if there is one. Raises `CorruptBlob`."""
        content = self._content(subject, artifact_type)
        return None if content is None else self.blobs.read(content)

    def attached_file(self, subject: Digest, artifact_type: str) -> Path | None:
        """As `attached`, where it lies; not to be changed."""
        content = self._content(subject, artifact_type)
        return None if content is None else self.blobs.path(content)

    def contents(self, subject: Digest, artifact_type: str) -> list[Digest]:
        """What the reports of this type about `subject` consist of. `attach` leaves one; other tools may add more."""
        found = [entry["digest"] for entry in self._index.read() if self._is_about(entry, {subject}, artifact_type)]
        return [layer.digest for report in found for layer in self.manifest(report).layers[:1]]

    def _content(self, subject: Digest, artifact_type: str) -> Digest | None:
        return next(iter(self.contents(subject, artifact_type)), None)

    def referrers(self, subject: Digest) -> list[Descriptor]:
        """The listed manifests that say something about `subject`."""
        return [Descriptor.from_json(entry) for entry in self._index.read() if self._is_about(entry, {subject})]

    def collect_garbage(self, roots: Iterable[Digest] = (), min_age_s: float = MIN_AGE_S) -> Collected:
        """Deletes every blob that neither the index nor `roots` lead to and that is older than `min_age_s`.

        The age protects what a build has stored and not yet listed; blobs still being written are never touched.
        """
        with self._index.change() as entries:  # no manifest may be listed between the check and the deletion
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
        """Whether the entry is a report (of this type) about one of `subjects`; a damaged one is about nothing."""
        if entry["mediaType"] != MANIFEST_MEDIA_TYPE or artifact_type not in (None, entry.get("artifactType")):
            return False
        digest = entry["digest"]
        if digest not in self._subjects:  # read once: what a digest stands for never changes
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
    if version != _LAYOUT_VERSION:
        raise InvalidInput(f"{marker}: image layout version {version!r}, but only {_LAYOUT_VERSION} is known")


def _listed(entries: list[Entry], digest: Digest) -> Entry:
    entry = entry_of(entries, digest)
    if entry is None:
        raise NotFound(f"there is no manifest {digest} in the index")
    return entry


def _told(annotations: Annotations) -> Mapping[str, str]:
    return annotations() if callable(annotations) else annotations


def _annotate(entry: Entry, annotations: Mapping[str, str]) -> None:
    if annotations:
        entry["annotations"] = {**entry.get("annotations", {}), **annotations}
