"""The interface of object stores: the operations that S3, Google Cloud Storage and Azure have in common.

An object appears completely or not at all, and listings show it at once. The only conditional operation is `create`,
which fails if the object exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ObjectInfo:
    """An object's name and size, and the time when it was put: seconds since the epoch by the object store's clock."""

    name: str
    size_bytes: int
    put_at_s: float


class Bucket(Protocol):
    """Objects by name. Every method raises `StoreUnreachable` if the store does not respond in time or refuses."""

    def head(self, name: str) -> ObjectInfo | None:
        """Returns the size and the time of an object; None if it does not exist."""

    def get(self, name: str) -> Iterator[bytes]:
        """Yields the bytes of an object in chunks. Raises `NotFound` if it does not exist."""

    def put(self, name: str, content: bytes | Path) -> None:
        """Puts an object. Replaces an object of the same name."""

    def create(self, name: str, content: bytes) -> bool:
        """Puts an object if none of that name exists. Returns true if it was put."""

    def delete(self, name: str) -> None:
        """Deletes an object if it exists."""

    def move(self, name: str, to: str) -> None:
        """Renames an object within the bucket if it exists."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yields the objects in a folder, in no particular order.

        Args:
            prefix: the folder's name with a slash at the end.
        """
