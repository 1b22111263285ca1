"""Limits on what a client may cost before it has said anything: uvicorn's HTTP, with an end to waiting for a head.

A connection may be idle, between requests; but the head of a request, once begun, has to come to its end, and so has
the first one. What is slow later is bounded where bodies are read (`pace`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.core.settings import Settings

_TOO_SLOW = (b"408 Request Timeout", b"the head of the request took too long")
_TOO_LARGE = (b"431 Request Header Fields Too Large", b"the head of the request is too large")


def connections(settings: Settings) -> type[HttpToolsProtocol]:
    """The protocol of one connection, with the limits of `settings`."""

    class Connection(_Connection):
        head_timeout_s, max_head_bytes = settings.head_timeout_s, settings.max_head_bytes

    return Connection


class _Connection(HttpToolsProtocol):
    head_timeout_s: float
    max_head_bytes: int

    _in_head = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:  # which has come in pieces: rare, but for those who mean harm
            self._head_bytes += len(data)
            if self._head_bytes > self.max_head_bytes:
                self._refuse(*_TOO_LARGE)
            elif self._head_timer is None:
                self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_head = False
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._refuse, *_TOO_SLOW)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes, why: bytes) -> None:
        self._stop_timer()
        busy: Any = self.cycle
        if self.transport.is_closing():
            return
        if busy is None or busy.response_complete:  # else this would be taken for the answer to the request before
            self.transport.write(
                b"HTTP/1.1 %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s" % (status, len(why), why)
            )
        self.transport.close()
