"""Content codings: gzip and deflate (which is zlib's format, RFC 9110 section 8.4.1)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from service.core.errors import InvalidInput, TooLarge

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


def inflated(chunks: Sequence[bytes], encoding: str, limit_bytes: int) -> bytes:
    """
    Raises:
        TooLarge: it would be longer than `limit_bytes`.
        InvalidInput: it cannot be inflated.
    """
    inflater = zlib.decompressobj(WINDOW_BITS[encoding])
    try:
        whole = inflater.decompress(b"".join(chunks), limit_bytes + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is not well-formed {encoding}: {error}") from error
    if len(whole) > limit_bytes:
        raise too_large(limit_bytes)
    if not inflater.eof:
        raise InvalidInput(f"the {encoding} body ends too early")
    if inflater.unused_data:
        raise InvalidInput(f"{len(inflater.unused_data)} bytes follow the end of the {encoding} body")
    return whole


def too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"the request is larger than {limit_bytes} bytes", hint="the server's OCTET_MAX_PREDICT_BYTES raises the limit"
    )
