"""File signatures and size limit of the pictures that a request may contain in place of a tensor.

`service.runtime.image` decodes the pictures.
"""

from __future__ import annotations

JPEG_MAGIC = b"\xff\xd8\xff"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
MAGIC_BYTES = len(PNG_MAGIC)  # `is_picture` looks at no more than these first bytes
MAX_PIXELS = 32 << 20  # the largest picture; decoding takes at most four bytes per pixel


def is_picture(data: bytes) -> bool:
    """Returns true if `data` begins with the signature of JPEG or PNG."""
    return data.startswith((JPEG_MAGIC, PNG_MAGIC))
