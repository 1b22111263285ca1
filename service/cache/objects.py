"""Buckets of S3, Google Cloud Storage and Azure, through the library `obstore`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from obstore import exceptions
from obstore import store as stores

from service.cache.bucket import ObjectInfo
from service.core.errors import NotFound, StorageFull, StoreUnreachable

_PART_BYTES = 8 << 20
_PARTS = 4  # the number of parts that are downloaded at the same time
_PROVIDERS = ("AWS", "GOOGLE", "AZURE")
_REQUEST_S, _CONNECT_S = 30, 5
_WITHOUT_ETAG = "MissingEtag"  # the name of obstore's error for an accepted object whose response has no ETag


class ObjectBucket:
    """A bucket of a cloud provider, see `bucket.Bucket`.

    Credentials, region and endpoint come from the environment variables of each provider's own tools.

    Args:
        url: `s3://bucket/prefix`, `gs://…`, `az://…`.
        timeout_s: how long a request without a response is retried.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url = url
        request_s = min(_REQUEST_S, max(1.0, timeout_s))
        client: stores.ClientConfig = {
            "timeout": timedelta(seconds=request_s),  # for one part, which is never large
            "allow_http": any(os.environ.get(f"{who}_ALLOW_HTTP", "").lower() == "true" for who in _PROVIDERS),
            "connect_timeout": timedelta(seconds=min(_CONNECT_S, request_s)),
        }
        retry: stores.RetryConfig = {"max_retries": 5, "retry_timeout": timedelta(seconds=timeout_s)}
        try:
            self._store = stores.from_url(url, client_options=client, retry_config=retry)
        except (exceptions.BaseError, ValueError) as error:
            raise StoreUnreachable(f"the store {url} cannot be opened: {_line(error)}", hint=_HINT) from error

    def head(self, name: str) -> ObjectInfo | None:
        with self._understood():
            try:
                return _info(self._store.head(name))
            except FileNotFoundError:
                return None

    def get(self, name: str) -> Iterator[bytes]:
        found = self.head(name)
        if found is None:
            raise NotFound(f"there is no object {name!r}")
        begins = list(range(0, found.size_bytes, _PART_BYTES))
        with ThreadPoolExecutor(_PARTS) as threads:
            for at in range(0, len(begins), _PARTS):
                parts = [
                    threads.submit(self._part, name, begin, min(_PART_BYTES, found.size_bytes - begin))
                    for begin in begins[at : at + _PARTS]
                ]
                for part in parts:
                    yield part.result()

    def put(self, name: str, content: bytes | Path) -> None:
        with self._understood():
            try:
                self._store.put(name, content, chunk_size=_PART_BYTES)
            except exceptions.GenericError as error:
                # OpenStack Swift accepts an object (202), without an ETag, if it has already a later version of it.
                if _WITHOUT_ETAG not in str(error) or self.head(name) is None:
                    raise

    def create(self, name: str, content: bytes) -> bool:
        with self._understood():
            try:
                self._store.put(name, content, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                return False
        return True

    def delete(self, name: str) -> None:
        with self._understood():
            try:
                self._store.delete(name)
            except FileNotFoundError:
                return

    def move(self, name: str, to: str) -> None:
        with self._understood():
            try:
                self._store.rename(name, to)
            except FileNotFoundError:
                return

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._understood():
            for page in self._store.list(prefix.rstrip("/")):
                yield from map(_info, page)

    def _part(self, name: str, begin: int, length: int) -> bytes:
        with self._understood():
            try:
                return bytes(self._store.get_range(name, start=begin, length=length))
            except FileNotFoundError:
                raise NotFound(f"there is no object {name!r}") from None

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except (exceptions.BaseError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of this machine, not of the bucket
            if "QuotaExceeded" in str(error) or "InsufficientStorage" in str(error):
                raise StorageFull(f"the store {self.url} is full") from error
            raise StoreUnreachable(f"the store {self.url} does not respond: {_line(error)}", hint=_HINT) from error


_HINT = "octet doctor checks whether it can be reached; credentials and endpoint are read from the environment"


def _info(found: Any) -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], found["last_modified"].timestamp())


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
