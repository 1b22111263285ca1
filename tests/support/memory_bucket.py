"""An object store in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from service.cache.bucket import ObjectInfo
from service.core.errors import NotFound


class MemoryBucket:
    """Implements `service.cache.bucket.Bucket` for tests.

    Attributes:
        objects: name -> content, and the time at which it was put. A test may change both.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self._lock = threading.Lock()

    def head(self, name: str) -> ObjectInfo | None:
        found = self.objects.get(name)
        return None if found is None else ObjectInfo(name, len(found[0]), found[1])

    def get(self, name: str) -> Iterator[bytes]:
        if name not in self.objects:
            raise NotFound(f"there is no object {name!r}")
        yield self.objects[name][0]

    def put(self, name: str, content: bytes | Path) -> None:
        data = content if isinstance(content, bytes) else content.read_bytes()
        self.objects[name] = data, time.time()

    def create(self, name: str, content: bytes) -> bool:
        with self._lock:
            if name in self.objects:
                return False
            self.put(name, content)
            return True

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    def move(self, name: str, to: str) -> None:
        if name in self.objects:
            self.put(to, self.objects.pop(name)[0])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        for name, (data, put_at_s) in list(self.objects.items()):
            if name.startswith(prefix):
                yield ObjectInfo(name, len(data), put_at_s)
