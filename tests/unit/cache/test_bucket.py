"""Tests of buckets that the store tests do not contain: in memory, and with each provider's server."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.errors import NotFound
from tests.support.buckets import TestedBucket, memory_bucket

LARGE = bytes(range(256)) * (20 << 12)  # 20 MiB: it is uploaded and downloaded in several parts
_SERVERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("gcs", "azure")]


@pytest.fixture(params=["memory", "s3", *_SERVERS])
def bucket(request: pytest.FixtureRequest) -> TestedBucket:
    if request.param == "memory":
        return memory_bucket()
    bucket: TestedBucket = request.getfixturevalue(f"{request.param}_bucket")
    return bucket


def read(bucket: TestedBucket, name: str) -> bytes:
    return b"".join(bucket.get(name))


def test_an_object_is_created_once(bucket: TestedBucket) -> None:
    """If an object could be created twice, a process that has lost the lock would overwrite the index of a store. The
    calls are sequential, because Swift accepts several concurrent creations.
    """
    assert [bucket.create("index/1", b"%d" % number) for number in range(3)] == [True, False, False]
    assert read(bucket, "index/1") == b"0"
    assert bucket.create("index/2", b"other")


def test_a_large_object_is_transferred_in_parts(bucket: TestedBucket, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    bucket.put("large", tmp_path / "large")
    found = bucket.head("large")
    assert found is not None
    assert found.size_bytes == len(LARGE)
    assert read(bucket, "large") == LARGE


def test_objects_are_listed_by_their_folder_moved_and_deleted(bucket: TestedBucket) -> None:
    for name in ("a/1", "a/2", "ab/3", "b/4"):
        bucket.put(name, name.encode())
    assert sorted(found.name for found in bucket.list("a/")) == ["a/1", "a/2"]
    bucket.move("a/1", "b/1")
    assert read(bucket, "b/1") == b"a/1"
    assert bucket.head("a/1") is None
    for name in ("b/1", "b/4", "b/4"):
        bucket.delete(name)
    bucket.move("b/4", "b/5")
    assert list(bucket.list("b/")) == []
    with pytest.raises(NotFound):
        read(bucket, "b/4")


def test_an_object_is_replaced(bucket: TestedBucket) -> None:
    for data in (b"first", b"", b"last"):
        bucket.put("one", data)
        assert read(bucket, "one") == data
