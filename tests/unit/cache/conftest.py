from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from service.cache import BlobStore, LocalBlobStore, OciLayout
from service.cache.remote import BucketBlobStore
from service.core.digest import Digest
from tests.support.blobs import age_blob, damage_blob, flipped
from tests.support.buckets import (
    TestedBucket,
    azure_bucket,
    azure_server,
    gcs_bucket,
    gcs_server,
    memory_bucket,
    s3_bucket,
    s3_server,
    s3_url,
)
from tests.support.memory_store import MemoryBlobStore

__all__ = ["azure_bucket", "azure_server", "gcs_bucket", "gcs_server", "s3_bucket", "s3_server", "s3_url"]

CACHE_BYTES = 1 << 30


_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gcs", "azure")]


@pytest.fixture(params=["local", "memory", "bucket", "s3", *_SLOW])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """A store of each type in turn."""
    if request.param == "local":
        return LocalBlobStore(tmp_path / "store")
    if request.param == "memory":
        return MemoryBlobStore()
    bucket = memory_bucket() if request.param == "bucket" else request.getfixturevalue(f"{request.param}_bucket")
    return BucketBlobStore(bucket, tmp_path / "cache", CACHE_BYTES)


@pytest.fixture
def damage(store: BlobStore) -> Callable[[Digest], None]:
    """A function that damages a blob of `store`."""

    def flip(digest: Digest) -> None:
        if isinstance(store, MemoryBlobStore):
            store.blobs[digest] = flipped(store.blobs[digest])
        elif isinstance(store, BucketBlobStore):
            assert isinstance(store.bucket, TestedBucket)
            store.bucket.damage(digest)
            damage_blob(store.cache.blobs.root, digest)
        else:
            assert isinstance(store, LocalBlobStore)
            damage_blob(store.root, digest)

    return flip


@pytest.fixture
def make_older(store: BlobStore) -> Callable[[Digest, float], None]:
    """A function that makes a blob of `store` look as if it had been put `seconds` earlier."""

    def change(digest: Digest, seconds: float) -> None:
        if isinstance(store, MemoryBlobStore):
            store._put_at[digest] -= seconds
        elif isinstance(store, BucketBlobStore):
            assert isinstance(store.bucket, TestedBucket)
            store.bucket.make_older(digest, seconds)
        else:
            assert isinstance(store, LocalBlobStore)
            age_blob(store.root, digest, seconds)

    return change


@pytest.fixture(params=["folder", "bucket"])
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> OciLayout:
    if request.param == "folder":
        return OciLayout(tmp_path / "layout")
    return OciLayout.in_bucket(memory_bucket(), tmp_path / "layout", CACHE_BYTES)
