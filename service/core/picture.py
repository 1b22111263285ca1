"""Signatures and limits of the pictures that may be sent in place of a tensor. `service.runtime.image` decodes them."""

from __future__ import annotations

JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
MAGIC_BYTES = len(PNG_MAGIC)  # what `is_picture` looks at
MAX_PIXELS = 32 << 20  # of one picture; a decoded picture takes at most four bytes for each


def is_picture(data: bytes) -> bool:
    """Whether `data` begins as a JPEG or PNG does."""
    return data.startswith((JPEG_MAGIC, PNG_MAGIC))
