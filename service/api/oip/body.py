"""The bytes of a predict request: what its headers say of them, read with every claim checked, inflated within bounds.

A body is kept as the chunks in which it arrived, so that each tensor is copied once, from there to where it is used;
or not at all, where it arrived in one piece (`api.shortcut`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from service.api.oip.coding import WINDOW_BITS, inflated, preferred, too_large
from service.core.buffers import aligned_empty, is_aligned
from service.core.errors import InvalidInput, UnsupportedFormat

_MAX_DIGITS = 20


@dataclass(frozen=True)
class Head:
    """The headers that describe the body.

    Attributes:
        json_bytes: `Inference-Header-Content-Length`, the length of the JSON before the raw tensors; None: all of it.
        content_bytes: `Content-Length`; None for a chunked body.
        encoding: `Content-Encoding`, in lower case; empty for none.
        media_type: `Content-Type`, in lower case and without its parameters.
        wants_binary: whether `Accept` asks for `application/octet-stream`.
        affinity: `Octet-Affinity`: requests with the same are answered by the same version; None: by any.
        coding: of `Accept-Encoding`, the one in which a long answer may come: gzip, deflate, or empty for neither.
        timeout_s: `Octet-Timeout-Ms`, how long the request may wait for its call; None where it is not there.
    """

    json_bytes: int | None = None
    content_bytes: int | None = None
    encoding: str = ""
    media_type: str = ""
    wants_binary: bool = False
    affinity: bytes | None = None
    coding: str = ""
    timeout_s: float | None = None

    @staticmethod
    def of(headers: Iterable[tuple[bytes, bytes]]) -> Head:
        """The head in an ASGI scope's headers, whose names are in lower case. Raises `InvalidInput`."""
        json_bytes = content_bytes = None
        encoding = media_type = coding = ""
        wants_binary, affinity, timeout_ms = False, None, None
        for name, value in headers:
            if name == b"inference-header-content-length":
                json_bytes = _number("Inference-Header-Content-Length", value, "length in bytes", json_bytes)
            elif name == b"content-length":
                content_bytes = _number("Content-Length", value, "length in bytes", content_bytes)
            elif name == b"content-encoding":
                encoding = value.decode("latin-1").strip().lower()
            elif name == b"content-type":
                media_type = value.decode("latin-1").partition(";")[0].strip().lower()
            elif name == b"accept":
                wants_binary = b"application/octet-stream" in value
            elif name == b"accept-encoding":
                coding = preferred(value)
            elif name == b"octet-affinity":
                affinity = value
            elif name == b"octet-timeout-ms":
                timeout_ms = _number("Octet-Timeout-Ms", value, "time in milliseconds", timeout_ms)
        timeout_s = None if timeout_ms is None else timeout_ms / 1e3
        return Head(json_bytes, content_bytes, encoding, media_type, wants_binary, affinity, coding, timeout_s)

    @property
    def is_raw(self) -> bool:
        """Whether the body is the model's one input and nothing else, neither JSON nor lengths."""
        return self.json_bytes == 0 or self.media_type.startswith("image/")


def _number(name: str, value: bytes, what: str, earlier: int | None) -> int:
    if not value.isdigit() or len(value) > _MAX_DIGITS:
        raise InvalidInput(f"the header {name} is not a {what}", hint="send a decimal number")
    number = int(value)
    if earlier not in (None, number):
        raise InvalidInput(f"the header {name} is there twice, with different values")
    return number


class Body:
    """Bytes that are taken from the front."""

    def __init__(self, chunks: Sequence[bytes | memoryview]) -> None:
        self._chunks = [memoryview(chunk) for chunk in reversed(chunks) if chunk]  # the next one is the last
        self.remaining_bytes = sum(map(len, chunks))

    def take(self, count: int) -> memoryview:
        """The next `count` bytes, which must be there; copied only where they lie in several chunks."""
        if self._chunks and len(self._chunks[-1]) >= count:
            return self._next(count)
        target = memoryview(bytearray(count))
        self.fill(target)
        return target

    def peek(self, most: int) -> bytes:
        """Up to `most` of the next bytes, which stay."""
        head = b""
        for chunk in reversed(self._chunks):
            head += chunk[: most - len(head)]
            if len(head) == most:
                break
        return head

    def fill(self, target: memoryview) -> None:
        """Copies the next `len(target)` bytes, which must be there, to `target`."""
        filled = 0
        while filled < len(target):
            part = self._next(len(target) - filled)
            target[filled : filled + len(part)] = part
            filled += len(part)

    def tensor(self, count: int) -> npt.NDArray[np.uint8]:
        """The next `count` bytes, which must be there, in aligned memory; not copied where they arrived in such."""
        if self._chunks and len(self._chunks[-1]) >= count and not self._chunks[-1].readonly:
            octets = np.frombuffer(self._chunks[-1], np.uint8, count)
            if is_aligned(octets):
                self._next(count)
                return octets
        octets = aligned_empty([count], np.uint8)
        self.fill(octets.data)
        return octets

    def _next(self, most: int) -> memoryview:
        chunk = self._chunks.pop()
        part, rest = chunk[:most], chunk[most:]
        if rest:
            self._chunks.append(rest)
        self.remaining_bytes -= len(part)
        return part


async def read_body(receive: Receive, head: Head, limit_bytes: int) -> Body:
    """The whole body, inflated. How long it may take to come is for the connection to say (`api.connection`).

    Raises:
        TooLarge: it is over the limit, by its declared length, as it arrives, or as it inflates.
        UnsupportedFormat: its encoding is neither gzip nor deflate.
        InvalidInput: it cannot be inflated.
        ClientDisconnect: the client left.
    """
    if head.content_bytes is not None and head.content_bytes > limit_bytes:
        raise too_large(limit_bytes)
    if head.encoding not in ("", "identity", *WINDOW_BITS):
        raise UnsupportedFormat(
            f"bodies with the encoding {head.encoding!r} are not supported",
            hint="send it uncompressed, or as gzip or deflate",
        )
    chunks: list[bytes] = []
    size_bytes, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size_bytes += len(chunk)
        if size_bytes > limit_bytes:
            raise too_large(limit_bytes)
        chunks.append(chunk)
        more = message.get("more_body", False)
    if head.encoding in WINDOW_BITS:
        chunks = [await asyncio.to_thread(inflated, chunks, head.encoding, limit_bytes)]
    return Body(chunks)
