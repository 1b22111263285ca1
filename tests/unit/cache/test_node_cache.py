"""Tests of the cache of a bucket's blobs on a machine's disk: verified, limited in size, fetched once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.cache.node_cache import NodeCache
from service.cache.remote import BucketBlobStore
from service.core.digest import Digest, digest_of
from service.core.errors import CorruptBlob, StorageFull, StoreUnreachable
from tests.support.blobs import blob_file, damage_blob
from tests.support.buckets import TestedBucket, memory_bucket
from tests.support.waiting import GIVE_UP_S

BLOB = b"0123456789"
MINE, OTHER = digest_of(BLOB), digest_of(b"other bytes")
LONG_AGO_S = 3600.0


@pytest.fixture
def bucket() -> TestedBucket:
    return memory_bucket()


@pytest.fixture
def elsewhere(bucket: TestedBucket, tmp_path: Path) -> BucketBlobStore:
    """The store on another machine, which has put `BLOB` into the bucket."""
    store = BucketBlobStore(bucket, tmp_path / "elsewhere", 1 << 30)
    store.put_bytes(BLOB)
    return store


@pytest.fixture
def store(elsewhere: BucketBlobStore, bucket: TestedBucket, tmp_path: Path) -> BucketBlobStore:
    return BucketBlobStore(bucket, tmp_path / "here", 1 << 30)


def is_here(store: BucketBlobStore, digest: Digest) -> bool:
    return blob_file(store.cache.blobs.root, digest).exists()


def make_unused(store: BucketBlobStore, digest: Digest, seconds: float = LONG_AGO_S) -> None:
    path = blob_file(store.cache.blobs.root, digest)
    os.utime(path, (time.time() - seconds, path.stat().st_mtime))


def test_a_blob_is_fetched_once_and_then_cached(store: BucketBlobStore, bucket: TestedBucket) -> None:
    assert store.path(MINE).read_bytes() == BLOB
    assert store.read(MINE) == BLOB
    assert len(bucket.fetched) == 1


@pytest.mark.parametrize("damage", [damage_blob, lambda root, digest: os.truncate(blob_file(root, digest), 3)])
def test_a_damaged_or_truncated_cached_blob_is_fetched_again(
    store: BucketBlobStore, damage: Callable[[Path, Digest], None]
) -> None:
    store.path(MINE)
    blob_file(store.cache.blobs.root, MINE).chmod(0o644)
    damage(store.cache.blobs.root, MINE)
    assert store.path(MINE).read_bytes() == BLOB


def test_a_blob_damaged_in_transit_is_fetched_again(
    store: BucketBlobStore, bucket: TestedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, answers = bucket.get, [b"9123456789"]
    monkeypatch.setattr(bucket, "get", lambda name: iter([answers.pop()]) if answers else good(name))
    assert store.read(MINE) == BLOB
    assert list(store.iterate()) == [MINE]


def test_a_blob_damaged_in_the_bucket_is_quarantined(store: BucketBlobStore, bucket: TestedBucket) -> None:
    bucket.damage(MINE)
    with pytest.raises(CorruptBlob, match="in the bucket"):
        store.path(MINE)
    assert not store.exists(MINE)
    assert not is_here(store, MINE)


def test_threads_that_want_the_same_blob_fetch_it_once(
    store: BucketBlobStore, bucket: TestedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, get = threading.Barrier(8), bucket.get

    def slow(name: str) -> object:
        time.sleep(0.1)
        return get(name)

    monkeypatch.setattr(bucket, "get", slow)

    def ask(_: int) -> bytes:
        many.wait(GIVE_UP_S)
        return store.path(MINE).read_bytes()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == {BLOB}
    assert len(bucket.fetched) == 1


def test_an_interrupted_fetch_leaves_nothing(
    store: BucketBlobStore, bucket: TestedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(name: str) -> object:
        yield BLOB[:4]
        raise StoreUnreachable

    monkeypatch.setattr(bucket, "get", breaks_off)
    with pytest.raises(StoreUnreachable):
        store.path(MINE)
    assert not is_here(store, MINE)
    assert list((store.cache.blobs.root / "uploads").iterdir()) == []


def test_the_least_recently_used_are_evicted_beyond_the_limit(bucket: TestedBucket, tmp_path: Path) -> None:
    store = BucketBlobStore(bucket, tmp_path / "cache", 250)
    digests = [store.put_bytes(bytes([number]) * 100) for number in range(4)]
    for seconds, digest in zip((400, 100, 300, 200), digests, strict=True):
        make_unused(store, digest, LONG_AGO_S + seconds)
    store.path(digests[0])
    store.put_bytes(b"more")
    assert [is_here(store, digest) for digest in digests] == [True, True, False, False]
    assert all(store.exists(digest) for digest in digests)
    assert store.read(digests[2]) == bytes([2]) * 100


def test_pinned_and_recently_used_blobs_are_not_evicted(
    bucket: TestedBucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A blob may be pinned by this process or by another. The cache exceeds its limit rather than break a path."""
    store, other = (BucketBlobStore(bucket, tmp_path / "cache", 1) for _ in range(2))
    pinned, in_hand, unused = (store.put_bytes(bytes([number]) * 100) for number in range(3))
    other.pin([pinned])
    make_unused(store, pinned)
    make_unused(store, unused)
    with caplog.at_level(logging.WARNING):
        store.cache.make_room()
    assert [is_here(store, digest) for digest in (pinned, in_hand, unused)] == [True, True, False]
    assert "store_cache_bytes" in caplog.text
    other.pin([])
    store.cache.make_room()
    assert not is_here(store, pinned)


def test_a_full_disk_evicts_unused_blobs(store: BucketBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = store.put_bytes(b"not used for a minute")
    make_unused(store, idle, 60.0)
    is_full, writer = [True], store.cache.blobs.writer

    def full_at_first() -> object:
        if is_full and is_here(store, idle):
            raise StorageFull
        return writer()

    monkeypatch.setattr(store.cache.blobs, "writer", full_at_first)
    assert store.read(MINE) == BLOB
    assert not is_here(store, idle)


def test_a_full_disk_without_anything_to_evict_is_an_error(
    store: BucketBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise StorageFull

    monkeypatch.setattr(store.cache.blobs, "writer", full)
    with pytest.raises(StorageFull):
        store.path(MINE)


def test_cached_blobs_are_read_during_an_outage(
    store: BucketBlobStore, bucket: TestedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.path(MINE)

    def gone(*_: object) -> None:
        raise StoreUnreachable

    for name in ("head", "get", "put", "list"):
        monkeypatch.setattr(bucket, name, gone)
    assert store.read(MINE) == BLOB
    with pytest.raises(StoreUnreachable):
        store.put_bytes(b"new")


def test_a_blob_renewed_by_another_machine_is_young(
    store: BucketBlobStore, elsewhere: BucketBlobStore, bucket: TestedBucket
) -> None:
    bucket.make_older(MINE, LONG_AGO_S)
    elsewhere.renew(MINE)
    assert not store.delete(MINE, min_age_s=60)


def test_a_fetch_of_wrong_bytes_is_an_error(tmp_path: Path) -> None:
    def nothing(digest: Digest) -> object:
        yield from ()

    with pytest.raises(Exception, match="hash"):
        NodeCache(tmp_path, 1, nothing).path(OTHER)  # type: ignore[arg-type]
