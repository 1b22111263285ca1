"""Content codings: gzip and deflate (which is zlib's format, RFC 9110 section 8.4.1)."""

from __future__ import annotations

import zlib

WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
WORTH_BYTES = 4096  # a shorter answer takes longer to compress than to send
_FAST = 1  # tensors hardly get smaller by trying longer


def preferred(accepted: bytes) -> str:
    """The coding in which an answer to an `Accept-Encoding` header comes: gzip, deflate, or empty for neither."""
    welcome = set()
    for item in accepted.lower().split(b","):
        coding, _, quality = item.partition(b";")
        if quality.replace(b" ", b"").rstrip(b"0") not in (b"q=", b"q=0."):
            welcome.add(coding.strip())
    return next((coding for coding in ("gzip", "deflate") if coding.encode() in welcome), "")


def compressed(body: bytes, coding: str) -> bytes:
    compressor = zlib.compressobj(_FAST, wbits=WINDOW_BITS[coding])
    return compressor.compress(body) + compressor.flush()
