"""The port to an object store: the little of S3, Google Cloud Storage and Azure that is asked of all three.

Objects appear whole or not at all, and listings show them at once. No condition is asked for but that a name is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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
