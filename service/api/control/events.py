"""Streams a build's history as server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from service.api.control.waiting import LOOK_S, POLL_S
from service.api.services import Services
from service.core.builds.build import BuildEvent
from service.core.errors import InvalidInput, NotFound
from service.db import Watch

EVENT_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "A number that grows by one."},
        "event": {"type": "string", "enum": ["state", "stage", "progress", "log"]},
        "data": {"type": "string", "description": "A JSON object."},
    },
}
_KEEP_ALIVE_S = 15.0  # proxies close connections without traffic; the specification suggests this interval
_RECONNECT_MS = 1000


def last_event_of(last_event_id: str | None) -> int:
    """Parses the id of the last event that a client received. Raises `InvalidInput`."""
    if not last_event_id:
        return 0
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 10):
        raise InvalidInput(f"Last-Event-ID {last_event_id!r} is not the id of an event", hint="ids are numbers")
    return int(last_event_id)


async def event_stream(services: Services, id: str, after: int) -> AsyncIterator[bytes]:
    """Yields the events of a build after number `after` as they happen, until the build ends."""

    def look() -> tuple[bool, list[BuildEvent]]:
        try:
            is_over = services.builds.get(
                id
            ).state.is_final  # the state is read before the events, so that the events include the final one
            return is_over, services.builds.events(id, after)
        except NotFound:  # the build's model was deleted
            return True, []

    yield f"retry: {_RECONNECT_MS}\n\n".encode()
    spoke_s, watch = time.monotonic(), Watch(services.builds.notifications, LOOK_S)
    while not services.stopping.is_set():
        is_over, events = await run_in_threadpool(look) if watch.is_due() else (False, [])
        for event in events:
            yield _text(event)
            after, spoke_s = event.sequence, time.monotonic()
        if is_over:
            return
        if time.monotonic() - spoke_s > _KEEP_ALIVE_S:
            yield b": still here\n\n"
            spoke_s = time.monotonic()
        await asyncio.sleep(POLL_S)


def _text(event: BuildEvent) -> bytes:
    data = json.dumps({"at": event.at.isoformat(), **event.data}, ensure_ascii=False)
    return f"id: {event.sequence}\nevent: {event.kind}\ndata: {data}\n\n".encode(errors="backslashreplace")
