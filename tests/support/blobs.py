"""Reads and damages the files of a store."""

from __future__ import annotations

import os
from pathlib import Path

from service.core.digest import Digest


def blob_file(root: Path, digest: Digest) -> Path:
    return root / "blobs" / "sha256" / digest.removeprefix("sha256:")


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def damage_blob(root: Path, digest: Digest) -> None:
    """Flips a bit of a stored blob, as a failing disk does."""
    path = blob_file(root, digest)
    path.chmod(0o644)
    path.write_bytes(flipped(path.read_bytes()))


def age_blob(root: Path, digest: Digest, seconds: float) -> None:
    """Makes a blob look as if it had been put `seconds` ago."""
    path = blob_file(root, digest)
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
