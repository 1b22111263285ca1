"""Signatures of the picture formats that may be sent in place of a tensor. `service.runtime.image` decodes them."""

from __future__ import annotations

JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
MAGIC_BYTES = len(PNG_MAGIC)  # what `is_picture` looks at


def is_picture(data: bytes) -> bool:
    """Whether `data` begins as a JPEG or PNG does."""
    return data.startswith((JPEG_MAGIC, PNG_MAGIC))
