"""The port to an object store: the little of S3, Google Cloud Storage and Azure that is asked of all three.

Objects appear whole or not at all, and listings show them at once. No condition is asked for but that a name is free.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from service.core.errors import NotFound


@dataclass(frozen=True)
class ObjectInfo:
    """An object's name, size, and when it was put, in seconds of the epoch by the object store's clock."""

    name: str
    size_bytes: int
    put_at_s: float


class Bucket(Protocol):
    """Objects by name. Every method raises `StoreUnreachable` where there is no answer in time, or a refusal."""

    def head(self, name: str) -> ObjectInfo | None:
        """None if there is no such object."""

    def get(self, name: str) -> Iterator[bytes]:
        """The bytes, in chunks. Raises `NotFound`."""

    def put(self, name: str, content: bytes | Path) -> None:
        """Puts an object, in the place of one that is there."""

    def create(self, name: str, content: bytes) -> bool:
        """Puts an object, unless there is one; whether there was none."""

    def delete(self, name: str) -> None:
        """If it is there."""

    def move(self, name: str, to: str) -> None:
        """If it is there; within the bucket."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Those whose names begin with a folder's, which ends in a slash; in no order."""


class MemoryBucket:
    """The twin of a real one, for tests.

    Attributes:
        objects: contents, and when they were put; a test may change both.
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
