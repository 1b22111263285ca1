"""Outages of a bucket on a real S3 server, and several machines that share the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.cache import Manifest, OciLayout
from service.cache.objects import ObjectBucket
from service.cache.remote import BucketBlobStore
from service.core.digest import digest_of
from service.core.errors import NotFound, StoreUnreachable
from tests.support.bad_network import BadNetwork, bad_network
from tests.support.blobs import blob_file
from tests.support.child_process import read_line, start_process, wait_for_output
from tests.support.waiting import GIVE_UP_S

CACHE_BYTES = 1 << 30
LARGE = bytes(range(256)) * (20 << 12)  # 20 MiB: an upload and a download consist of several parts
PROCESS = "tests.support.bucket_process"


@pytest.fixture
def network(s3_url: str, s3_server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadNetwork]:
    with bad_network(("127.0.0.1", s3_server)) as network:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{network.port}")
        yield network


@pytest.fixture
def far(network: BadNetwork, s3_url: str, tmp_path: Path) -> BucketBlobStore:
    """A store that is connected through the faulty network, with a timeout of one second."""
    return BucketBlobStore(ObjectBucket(s3_url, timeout_s=1.0), tmp_path / "far", CACHE_BYTES)


def test_a_large_blob_is_uploaded_and_downloaded_in_parts(s3_url: str, tmp_path: Path) -> None:
    here, there = (
        BucketBlobStore(ObjectBucket(s3_url, GIVE_UP_S), tmp_path / name, CACHE_BYTES) for name in ("here", "there")
    )
    with here.writer() as writer:
        for begin in range(0, len(LARGE), 1 << 20):
            writer.write(LARGE[begin : begin + (1 << 20)])
        digest = writer.commit(digest_of(LARGE))
    assert there.size_bytes(digest) == len(LARGE)
    assert there.path(digest).read_bytes() == LARGE


@pytest.mark.parametrize("fault", ["stall", "refuse"])
def test_an_outage_of_the_bucket_is_an_error_and_ends(far: BucketBlobStore, network: BadNetwork, fault: str) -> None:
    """Connections are refused, or packets are dropped silently. Cached blobs can still be read."""
    kept = far.put_bytes(b"kept")
    gone = far.put_bytes(b"evicted")
    far.cache.blobs.delete(gone)
    getattr(network, fault)()
    asks: list[Callable[[], object]] = [
        lambda: far.path(gone),
        lambda: far.put_bytes(b"new"),
        lambda: far.exists(kept),
        lambda: list(far.iterate()),
    ]
    for ask in asks:
        with pytest.raises(StoreUnreachable):
            ask()
    assert far.read(kept) == b"kept"
    assert not blob_file(far.cache.blobs.root, gone).exists()
    network.flow()
    network.accept()
    assert far.path(gone).read_bytes() == b"evicted"
    assert far.exists(far.put_bytes(b"new"))


def test_a_download_that_is_cut_off_is_retried_or_leaves_nothing(
    network: BadNetwork, far: BucketBlobStore, s3_url: str
) -> None:
    digest = far.put_bytes(LARGE)
    far.cache.blobs.delete(digest)
    network.cut_after(b"GET ")
    assert far.path(digest).read_bytes() == LARGE


def test_processes_of_one_machine_fetch_a_blob_once(s3_url: str, tmp_path: Path) -> None:
    elsewhere = BucketBlobStore(ObjectBucket(s3_url, GIVE_UP_S), tmp_path / "elsewhere", CACHE_BYTES)
    digest = elsewhere.put_bytes(LARGE)
    commands = [(s3_url, tmp_path / "here", digest)] * 3
    fetched = 0
    with (
        start_process(PROCESS, *commands[0]) as a,
        start_process(PROCESS, *commands[1]) as b,
        start_process(PROCESS, *commands[2]) as c,
    ):
        for process in (a, b, c):
            assert read_line(process) == "ready"
        for process in (a, b, c):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        fetched = sum(int(wait_for_output(process)[0]) for process in (a, b, c))
    assert fetched == 1


def test_a_collection_keeps_what_another_machine_lists_meanwhile(s3_url: str, tmp_path: Path) -> None:
    one, other = (
        OciLayout.in_bucket(ObjectBucket(s3_url, GIVE_UP_S), tmp_path / "shared", CACHE_BYTES) for _ in range(2)
    )

    def collect() -> None:
        for _ in range(5):
            one.collect_garbage(min_age_s=3600)

    with ThreadPoolExecutor(1) as thread:
        collecting = thread.submit(collect)
        listed = [other.put_manifest(_manifest(other, f"artifact {number}".encode())).digest for number in range(5)]
        collecting.result(GIVE_UP_S)
    assert {entry.digest for entry in one.index()} == set(listed)
    for digest in listed:
        assert all(one.blobs.exists(layer.digest) for layer in one.manifest(digest).layers)


def test_a_missing_bucket_is_reported(s3_url: str, tmp_path: Path) -> None:
    missing = BucketBlobStore(ObjectBucket("s3://no-such-bucket/a", 1.0), tmp_path, CACHE_BYTES)
    with pytest.raises((StoreUnreachable, NotFound)):
        missing.put_bytes(b"blob")


def _manifest(layout: OciLayout, library: bytes) -> Manifest:
    config = layout.put_blob_descriptor("application/vnd.example.config+json", b"{}")
    return Manifest("application/vnd.example", config, (layout.put_blob_descriptor("application/vnd.x", library),))
