"""Tests of the index in a bucket: a lost lock loses no change, and in an outage the last index is used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.cache.bucket_index import BucketIndex
from service.core.errors import Conflict, CorruptBlob, StoreUnreachable
from tests.support.buckets import TestedBucket, memory_bucket

CACHE_BYTES = 1 << 30


@pytest.fixture
def bucket() -> TestedBucket:
    return memory_bucket()


def layout_of(bucket: TestedBucket, folder: Path) -> OciLayout:
    return OciLayout.in_bucket(bucket, folder, CACHE_BYTES)


def test_machines_share_the_index(bucket: TestedBucket, tmp_path: Path) -> None:
    one, other = layout_of(bucket, tmp_path / "one"), layout_of(bucket, tmp_path / "other")
    for layout, name in ((one, "a"), (other, "b")):
        with layout.change_annotations() as annotations:
            annotations[name] = "said"
    assert one.annotations() == other.annotations() == {"a": "said", "b": "said"}


def test_concurrent_threads_lose_no_change(bucket: TestedBucket, tmp_path: Path) -> None:
    layouts = [layout_of(bucket, tmp_path) for _ in range(4)]

    def change(number: int) -> None:
        with layouts[number % 4].change_annotations() as annotations:
            annotations[str(number)] = ""

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(change, range(64)))
    assert len(layouts[0].annotations()) == 64


def test_a_process_that_lost_the_lock_writes_nothing(bucket: TestedBucket, tmp_path: Path) -> None:
    """The process also writes nothing if other processes have written so often that the object with the number that it
    would write has been deleted.
    """
    for changes in (1, 30):
        slow, fast = (BucketIndex(bucket, nullcontext, tmp_path / f"seen-{name}") for name in ("slow", "fast"))
        for index in (slow, fast):
            index.read(is_locked=True)
        for number in range(changes):
            fast.replace(f"fast {number}".encode())
        with pytest.raises(Conflict):
            slow.replace(b"slow")
        assert fast.read() == f"fast {changes - 1}".encode()


def test_a_few_old_objects_are_kept(bucket: TestedBucket, tmp_path: Path) -> None:
    index = BucketIndex(bucket, nullcontext, tmp_path / "seen")
    for number in range(50):
        index.read(is_locked=True)
        index.replace(str(number).encode())
    assert len(list(bucket.list("index/"))) == 20
    assert BucketIndex(bucket, nullcontext, tmp_path / "other").read() == b"49"


def test_in_an_outage_the_last_index_is_read_and_not_changed(
    bucket: TestedBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with layout_of(bucket, tmp_path).change_annotations() as annotations:
        annotations["a"] = "said"

    def gone(*_: object) -> None:
        raise StoreUnreachable

    for name in ("head", "get", "put", "create", "list"):
        monkeypatch.setattr(bucket, name, gone)
    again = layout_of(bucket, tmp_path)
    assert again.annotations() == {"a": "said"}
    for change in (again.change_annotations, again.lock):
        with pytest.raises(StoreUnreachable), change():
            pytest.fail("it was changed")
    with pytest.raises(StoreUnreachable):
        layout_of(bucket, tmp_path / "that has seen nothing")


def test_a_lost_index_is_reported_and_not_recreated(bucket: TestedBucket, tmp_path: Path) -> None:
    layout_of(bucket, tmp_path)
    for found in list(bucket.list("index/")):
        bucket.delete(found.name)
    with pytest.raises(CorruptBlob):
        layout_of(bucket, tmp_path / "other")
