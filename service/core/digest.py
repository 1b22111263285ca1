"""Content digests of the form `sha256:<64 hex digits>`. Digests are the names of blobs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NewType

from service.core.errors import InvalidInput

Digest = NewType("Digest", str)

_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK_BYTES = 1 << 20


def parse_digest(text: str) -> Digest:
    """Parses a digest.

    Raises:
        InvalidInput: `text` is not `sha256:` and 64 lower-case hexadecimal digits.
    """
    if not _PATTERN.fullmatch(text):
        raise InvalidInput(f"{text!r} is not a digest", hint="a digest reads sha256:<64 lower-case hex digits>")
    return Digest(text)


def digest_of(data: bytes | memoryview) -> Digest:
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def digest_of_file(path: Path) -> Digest:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return Digest("sha256:" + hasher.hexdigest())


def canonical_json(value: Any) -> bytes:
    """Returns the canonical encoding of `value`: sorted keys, no white space, UTF-8. NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of_json(value: Any) -> Digest:
    return digest_of(canonical_json(value))
