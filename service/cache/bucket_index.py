"""The index of a store in a bucket: numbered objects, of which the highest counts.

    index/<number of 20 digits>.json

Each change is a new object, which is only put where the number is free. So a process that lost the lock and does not
know it writes nothing if others have written since. The last numbers stay, to be looked at, or gone back to.
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
    """See `index.Document`.

    Args:
        lock: one for all processes that share the bucket.
        seen: a file of this machine, for what was read last.
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
            _logger.warning("%s; what was in its index last is gone by", error)
            return self._data or self._seen_file.read_bytes()

    def replace(self, data: bytes) -> None:
        number = self._number + 1
        if not self._bucket.create(_name(number), data) or max(self._numbers()) > number:
            raise Conflict(
                "the index of the store was changed by another process, in spite of the lock", hint="try again"
            )
        self._note(number, data)
        for old in [each for each in self._numbers() if each <= number - _KEPT]:
            self._bucket.delete(_name(old))

    def _newest(self) -> bytes | None:
        for _ in range(_KEPT):  # it may be one of the old ones, and gone, when it is asked for
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
