"""A blocking client of an ASGI application, without sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx


class Transport(httpx.BaseTransport):
    """Runs the application on an event loop in a separate thread. A response is returned when it is complete."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._loop = httpx.ASGITransport(app, raise_app_exceptions=False), loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._handle(request), self._loop).result()

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        body = _Body(cast(httpx.SyncByteStream, request.stream))
        forwarded = httpx.Request(request.method, request.url, headers=request.headers, stream=body)
        response = await self._inner.handle_async_request(forwarded)
        stored = b"".join([chunk async for chunk in cast(httpx.AsyncByteStream, response.stream)])
        return httpx.Response(response.status_code, headers=response.headers, content=stored)


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._stream:
            yield chunk


@contextmanager
def client_of(app: Any) -> Iterator[httpx.Client]:
    """Yields a client of `app`, and shuts the application down at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="asgi")
    thread.start()
    lifespan = app.router.lifespan_context(app)
    asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), loop).result()
    try:
        with httpx.Client(transport=Transport(app, loop), base_url="http://localhost") as client:
            yield client
    finally:
        asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), loop).result()
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
