"""The index of a store in a bucket: numbered objects, of which the one with the highest number is current.

    index/<number of 20 digits>.json

Each change creates the object with the next number, which fails if the number exists. So a process that has lost the
lock without noticing cannot overwrite a change of another process. The last few objects are kept for diagnosis and
recovery.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from service.cache.bucket import Bucket
from service.cache.durable import replace_file
from service.core.errors import Conflict, NotFound, StoreUnreachable

_logger = logging.getLogger(__name__)
_FOLDER = "index/"
_KEPT = 20


class BucketIndex:
    """The index in a bucket, see `index.Document`.

    Args:
        lock: the lock of all processes that share the bucket.
        seen: a file on this machine, in which the last index that was read is cached.
    """

    def __init__(self, bucket: Bucket, lock: Callable[[], AbstractContextManager[None]], seen: Path) -> None:
        self._bucket, self._lock, self._seen_file = bucket, lock, seen
        self._number, self._data = 0, b""

    def lock(self) -> AbstractContextManager[None]:
        return self._lock()

    def read(self, is_locked: bool = False) -> bytes | None:
        try:
            return self._newest()
        except StoreUnreachable as error:
            if is_locked or not (self._data or self._seen_file.exists()):
                raise
            _logger.warning("%s; using the index that was read last", error)
            return self._data or self._seen_file.read_bytes()

    def replace(self, data: bytes) -> None:
        number = self._number + 1
        if not self._bucket.create(_name(number), data) or max(self._numbers()) > number:
            raise Conflict(
                "another process changed the index of the store, although this one held the lock", hint="try again"
            )
        self._note(number, data)
        for old in [each for each in self._numbers() if each <= number - _KEPT]:
            self._bucket.delete(_name(old))

    def _newest(self) -> bytes | None:
        for _ in range(_KEPT):  # the object may be replaced and deleted between the listing and the read
            numbers = self._numbers()
            if not numbers:
                return None
            number = max(numbers)
            if number == self._number:
                return self._data
            try:
                self._note(number, b"".join(self._bucket.get(_name(number))))
            except NotFound:
                continue
            return self._data
        raise StoreUnreachable("the index of the store changes faster than it can be read")

    def _numbers(self) -> list[int]:
        names = [found.name.removeprefix(_FOLDER).removesuffix(".json") for found in self._bucket.list(_FOLDER)]
        return [int(name) for name in names if name.isdecimal()]

    def _note(self, number: int, data: bytes) -> None:
        self._number, self._data = number, data
        replace_file(self._seen_file, data)


def _name(number: int) -> str:
    return f"{_FOLDER}{number:020}.json"
