"""File signatures and size limit of the pictures that a request may contain in place of a tensor.

`service.runtime.image` decodes the pictures. `native/plane/request/picture.cc` recognizes the same formats.
"""

from __future__ import annotations

from enum import StrEnum

MAX_PIXELS = 32 << 20  # the largest picture; decoding takes at most four bytes per pixel

_BMP_HEADER_SIZES = (12, 40, 52, 56, 64, 108, 124)


class PictureFormat(StrEnum):
    """The formats of pictures that can be decoded."""

    JPEG = "JPEG"
    PNG = "PNG"
    WEBP = "WebP"
    BMP = "BMP"
    GIF = "GIF"


def format_of(data: bytes) -> PictureFormat | None:
    """Returns the format of the picture in `data` according to its first bytes, or None if it is not a picture."""
    if data.startswith(b"\xff\xd8\xff"):
        return PictureFormat.JPEG
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return PictureFormat.PNG
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return PictureFormat.WEBP
    if data.startswith((b"GIF87a", b"GIF89a")):
        return PictureFormat.GIF
    has_bmp_header = data[6:10] == bytes(4) and int.from_bytes(data[14:18], "little") in _BMP_HEADER_SIZES
    return PictureFormat.BMP if data.startswith(b"BM") and has_bmp_header else None
