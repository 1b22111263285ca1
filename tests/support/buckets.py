"""Buckets for tests, in memory and on a server of each provider. Tests can damage their objects and make them older."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.cache.bucket import Bucket, ObjectInfo
from service.cache.remote import BucketBlobStore
from service.core.digest import Digest
from tests.support import azure_server as azure
from tests.support import gcs_server as gcs
from tests.support import s3_server as s3
from tests.support.blobs import age_blob, flipped
from tests.support.memory_bucket import MemoryBucket


class TestedBucket:
    """A bucket whose objects a test can change; see `bucket.Bucket`.

    Attributes:
        fetched: the names with which `get` was called, in order.
    """

    __test__ = False

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.fetched: list[str] = []
        self._older: dict[str, float] = {}

    def make_older(self, digest: Digest, seconds: float) -> None:
        """Makes a blob and the record of its renewal look older than they are, until they are put again."""
        for name in (_name(digest), f"renewed/{digest.removeprefix('sha256:')}"):
            self._older[name] = self._older.get(name, 0.0) + seconds

    def damage(self, digest: Digest) -> None:
        data = b"".join(self.bucket.get(_name(digest)))
        self.bucket.put(_name(digest), flipped(data))

    def head(self, name: str) -> ObjectInfo | None:
        found = self.bucket.head(name)
        return None if found is None else self._aged(found)

    def get(self, name: str) -> Iterator[bytes]:
        self.fetched.append(name)
        return self.bucket.get(name)

    def put(self, name: str, content: bytes | Path) -> None:
        self.bucket.put(name, content)
        self._older.pop(name, None)

    def create(self, name: str, content: bytes) -> bool:
        return self.bucket.create(name, content)

    def delete(self, name: str) -> None:
        self.bucket.delete(name)

    def move(self, name: str, to: str) -> None:
        self.bucket.move(name, to)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return map(self._aged, self.bucket.list(prefix))

    def _aged(self, found: ObjectInfo) -> ObjectInfo:
        return replace(found, put_at_s=found.put_at_s - self._older.get(found.name, 0.0))


def make_older(layout: OciLayout, digest: Digest, seconds: float) -> None:
    """Makes a blob of a layout look as if it had been put `seconds` ago."""
    if isinstance(layout.blobs, BucketBlobStore):
        assert isinstance(layout.blobs.bucket, TestedBucket)
        layout.blobs.bucket.make_older(digest, seconds)
    else:
        age_blob(layout.root, digest, seconds)


def memory_bucket() -> TestedBucket:
    return TestedBucket(MemoryBucket())


@pytest.fixture(scope="session")
def s3_server() -> Iterator[int]:
    """The port of a real S3 server."""
    reason = s3.why_not()
    if reason:
        pytest.skip(f"NOT TESTED ON S3: {reason}")
    with s3.server() as port:
        yield port


@pytest.fixture
def s3_url(s3_server: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an unused prefix in the S3 server's bucket. The environment variables for clients are set."""
    for name, value in s3.environment(s3_server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def s3_bucket(s3_url: str) -> TestedBucket:
    from service.cache.objects import ObjectBucket

    return TestedBucket(ObjectBucket(s3_url, timeout_s=30.0))


@pytest.fixture(scope="session")
def gcs_server(s3_server: int) -> Iterator[int]:
    """The port of a server with the API of Google Cloud Storage."""
    with gcs.server(s3_server) as port:
        yield port


@pytest.fixture
def gcs_bucket(gcs_server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestedBucket:
    """An unused prefix in the bucket of the Google Cloud Storage server."""
    return _bucket(f"gs://{gcs.BUCKET}", gcs.environment(gcs_server, tmp_path), monkeypatch)


@pytest.fixture(scope="session")
def azure_server() -> Iterator[int]:
    """The port of an emulator of Azure Blob Storage."""
    reason = azure.why_not()
    if reason:
        pytest.skip(f"NOT TESTED ON AZURE: {reason}")
    with azure.server() as port:
        yield port


@pytest.fixture
def azure_bucket(azure_server: int, monkeypatch: pytest.MonkeyPatch) -> TestedBucket:
    """An unused prefix in the container of the Azure emulator."""
    return _bucket(f"az://{azure.CONTAINER}", azure.environment(azure_server), monkeypatch)


def _bucket(url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> TestedBucket:
    from service.cache.objects import ObjectBucket

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return TestedBucket(ObjectBucket(f"{url}/{uuid.uuid4().hex}", timeout_s=30.0))


def _name(digest: Digest) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"
