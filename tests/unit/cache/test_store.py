"""Tests of the contract of all blob stores. `store` is a store in a folder, in memory, and in buckets, one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.cache import BlobStore, LocalBlobStore
from service.cache.remote import BucketBlobStore
from service.core.digest import Digest, digest_of
from service.core.errors import CorruptBlob, DigestMismatch, InvalidInput, NotFound
from tests.support.memory_store import MemoryBlobStore

Damage = Callable[[Digest], None]
MakeOlder = Callable[[Digest, float], None]

DATA = b"some bytes that are stored"
ABSENT = digest_of(b"never stored")


def test_a_stored_blob_is_found_by_its_digest(store: BlobStore) -> None:
    digest = store.put_bytes(DATA)
    assert digest == digest_of(DATA)
    assert store.exists(digest)
    assert store.read(digest) == DATA
    assert store.size_bytes(digest) == len(DATA)
    assert store.path(digest).read_bytes() == DATA


def test_the_empty_blob_is_a_blob(store: BlobStore) -> None:
    assert store.read(store.put_bytes(b"")) == b""


def test_putting_the_same_bytes_again_changes_nothing(store: BlobStore) -> None:
    assert store.put_bytes(DATA) == store.put_bytes(DATA)
    assert list(store.iterate()) == [digest_of(DATA)]


def test_an_absent_blob_is_not_found(store: BlobStore) -> None:
    assert not store.exists(ABSENT)
    for question in (store.read, store.path, store.size_bytes, store.renew, store.age_s):
        with pytest.raises(NotFound):
            question(ABSENT)


@pytest.mark.parametrize("name", ["sha256:../../../etc/passwd", "../oci-layout", "", "sha256:" + "A" * 64])
def test_invalid_digests_are_never_looked_up(store: BlobStore, name: str) -> None:
    for question in (store.exists, store.read, store.path, store.size_bytes, store.renew, store.age_s, store.delete):
        with pytest.raises(InvalidInput):
            question(Digest(name))


def test_a_writer_hashes_while_it_writes(store: BlobStore) -> None:
    with store.writer() as writer:
        for chunk in (DATA[:5], bytearray(DATA[5:9]), memoryview(DATA)[9:]):
            writer.write(chunk)
        assert writer.size_bytes == len(DATA)
        assert not store.exists(digest_of(DATA))
        assert writer.commit(digest_of(DATA)) == digest_of(DATA)
    assert store.read(digest_of(DATA)) == DATA


def test_a_writer_that_is_not_committed_stores_nothing(store: BlobStore) -> None:
    with store.writer() as writer:
        writer.write(DATA)
    assert list(store.iterate()) == []


def test_an_interrupted_writer_stores_nothing(store: BlobStore) -> None:
    def upload() -> None:
        with store.writer() as writer:
            writer.write(DATA)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upload()
    assert list(store.iterate()) == []


def test_bytes_with_another_digest_are_not_stored(store: BlobStore) -> None:
    with store.writer() as writer:
        writer.write(DATA)
        with pytest.raises(DigestMismatch, match=digest_of(DATA)):
            writer.commit(ABSENT)
    assert list(store.iterate()) == []


def test_nothing_can_be_written_after_the_commit(store: BlobStore) -> None:
    with store.writer() as writer:
        writer.commit()
        with pytest.raises(RuntimeError):
            writer.write(DATA)
        with pytest.raises(RuntimeError):
            writer.commit()
    with store.writer() as given_up:
        pass
    with pytest.raises(RuntimeError):
        given_up.commit()


def test_a_file_is_moved_into_the_store(store: BlobStore, tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_bytes(DATA)
    digest = store.put_file(file)
    assert store.read(digest) == DATA
    assert not file.exists()


def test_only_a_regular_file_can_be_stored(store: BlobStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(DATA)
    link = tmp_path / "link"
    link.symlink_to(secret)
    for path in (link, tmp_path):
        with pytest.raises(InvalidInput):
            store.put_file(path)
    with pytest.raises(NotFound):
        store.put_file(tmp_path / "absent")
    assert list(store.iterate()) == []
    assert secret.exists()


def test_deleting_is_idempotent(store: BlobStore) -> None:
    digest = store.put_bytes(DATA)
    assert store.delete(digest)
    assert not store.delete(digest)
    assert not store.exists(digest)


def test_young_blobs_are_not_deleted(store: BlobStore) -> None:
    digest = store.put_bytes(DATA)
    assert not store.delete(digest, min_age_s=60)
    assert store.read(digest) == DATA


def test_renewing_resets_the_age(store: BlobStore, make_older: MakeOlder) -> None:
    renewed, old = store.put_bytes(DATA), store.put_bytes(b"old")
    for digest in (renewed, old):
        make_older(digest, 120)
    assert store.renew(renewed) == len(DATA)
    assert [store.delete(digest, min_age_s=60) for digest in (renewed, old)] == [False, True]


def test_blobs_can_be_listed_and_their_total_size_read(store: BlobStore) -> None:
    blobs = [b"a", b"bb", b"ccc"]
    assert {store.put_bytes(blob) for blob in blobs} == set(store.iterate())
    assert store.total_bytes() == 6


def test_a_damaged_blob_is_reported_once_and_then_absent(store: BlobStore, damage: Damage) -> None:
    digest = store.put_bytes(DATA)
    damage(digest)
    with pytest.raises(CorruptBlob, match=digest):
        store.read(digest)
    assert not store.exists(digest)
    with pytest.raises(NotFound):
        store.read(digest)


def test_damaged_blobs_are_kept_for_a_while(store: BlobStore, damage: Damage) -> None:
    def count_quarantined() -> int:
        if isinstance(store, BucketBlobStore):
            return len(list(store.bucket.list("quarantine/")))
        return len(store.quarantine) if isinstance(store, MemoryBlobStore) else _files(store, "quarantine")

    digest = store.put_bytes(DATA)
    damage(digest)
    with pytest.raises(CorruptBlob):
        store.read(digest)
    store.discard_damaged(60)
    assert count_quarantined() == 1
    store.discard_damaged(0)
    assert count_quarantined() == 0
    store.discard_damaged(0)


def _files(store: BlobStore, folder: str) -> int:
    assert isinstance(store, LocalBlobStore)
    return len(list((store.root / folder).iterdir()))


def test_a_damaged_blob_is_never_mapped(store: BlobStore, damage: Damage) -> None:
    digest = store.put_bytes(DATA)
    damage(digest)
    with pytest.raises(CorruptBlob):
        store.path(digest)
    with pytest.raises(NotFound):
        store.path(digest)


def test_storing_the_bytes_again_repairs_a_blob(store: BlobStore, damage: Damage) -> None:
    digest = store.put_bytes(DATA)
    damage(digest)
    store.put_bytes(DATA)
    assert store.read(digest) == DATA
    assert store.path(digest).read_bytes() == DATA


def test_threads_that_write_the_same_blob_agree(store: BlobStore) -> None:
    data = DATA * 1000
    with ThreadPoolExecutor(8) as threads:
        assert {*threads.map(store.put_bytes, [data] * 32)} == {digest_of(data)}
    assert list(store.iterate()) == [digest_of(data)]
    assert store.read(digest_of(data)) == data
