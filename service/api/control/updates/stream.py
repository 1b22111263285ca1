"""Sends changes of the state as server-sent events, compressed if the client accepts that."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from service.api.control.updates.changes import State, changes_of
from service.api.services import Services
from service.core.errors import OctetError

EVERY_S = 1.0
_KEEP_ALIVE_S = 15.0  # proxies close connections without traffic
_LOOK_S = 0.1
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

Take = Callable[[], Awaitable[State]]


async def stream_of(
    services: Services, take: Take, about: dict[str, Any], *, once: bool = False
) -> AsyncIterator[bytes]:
    """Yields an event `hello` with `about`, an event `change` with the whole state, and then an event `change` about
    once a second, if anything has changed. Its data is `{"at": TIME, PART: {"set": {KEY: ITEM}, "gone": [KEY]}}`.

    Ends when the server stops, or when the state cannot be read; the client then connects again. With `once`, it ends
    after the first `change`.
    """
    yield _event("hello", about)
    before: State = {}
    spoke_s = time.monotonic()
    while not services.stopping.is_set():
        try:
            after = await take()
        except OctetError as error:
            yield _event("problem", {"detail": error.message, "hint": error.hint})
            return
        if changed := changes_of(before, after):
            yield _event("change", {"at": datetime.now(UTC).isoformat(), **changed})
            before, spoke_s = after, time.monotonic()
        elif time.monotonic() - spoke_s > _KEEP_ALIVE_S:
            yield b": still here\n\n"
            spoke_s = time.monotonic()
        if once:
            return
        next_s = time.monotonic() + EVERY_S
        while not services.stopping.is_set() and time.monotonic() < next_s:
            await asyncio.sleep(_LOOK_S)


async def compressed(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the events in gzip's format, each so that the client can read it at once."""
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
    async for event in events:
        yield compressor.compress(event) + compressor.flush(zlib.Z_SYNC_FLUSH)
    yield compressor.flush()


def _event(name: str, data: dict[str, Any]) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode(errors="backslashreplace")
