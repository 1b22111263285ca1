"""Limits on what a slow client may cost: uvicorn's HTTP, with an end to waiting for what was begun.

A connection may be idle between requests; but the head of a request, once begun, has to come to its end in time, and
so has the first one, and a body has to go on coming. A request that arrives at once costs no timer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.api.oip.front.exchange import Exchange

_TOO_SLOW = (b"408 Request Timeout", b"the head of the request took too long")
_STALLED = (b"408 Request Timeout", b"the body of the request stood still, or came too slowly")
_NO_MEMORY = (b"503 Service Unavailable", b"there is no memory for the body of the request")
_TOO_LARGE = (b"431 Request Header Fields Too Large", b"the head of the request is too large")
_AROUND_BYTES = len(": \r\n")  # of a header's name and value


class Connection(HttpToolsProtocol):
    """uvicorn's, with limits: times in seconds, and how many bytes of a body there must be in each `stall_timeout_s`.

    Attributes:
        prediction: who answers now, where it is not uvicorn's part of the connection (`shortcut`).
    """

    head_timeout_s: float
    max_head_bytes: int
    stall_timeout_s: float
    min_body_bytes: int

    prediction: Exchange | None = None
    _in_request = False
    _in_head = _in_body = False
    _body_bytes = 0  # since the timer was set
    _body_timer: asyncio.TimerHandle | None = None
    _is_watched = False  # whether the body under way had begun when the timer was set
    _head_bytes = 0  # of the lines that were read, and those that follow a body in chunks
    _unread_bytes = 0  # that came since something was read: one line, or what chunks are framed in
    _head_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """Whether what comes next belongs to a request that has begun, or has to wait for the answer to one."""
        return self._in_request or (self.cycle is not None and not self.cycle.response_complete)

    def rest(self) -> None:
        """Others have the connection, until `keep_alive`."""
        self._unset_keepalive_if_required()
        self._stop_timer()

    def keep_alive(self) -> None:
        """The connection is closed where nothing comes for long."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def body_came(self, count: int, more: bool) -> None:
        """`count` bytes of a prediction's body; it too has to go on coming."""
        self._in_body = more
        self._body_bytes += count
        if not more:
            self._is_watched = False
        elif self._body_timer is None:
            self._watch_body()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unread_bytes > self.max_head_bytes:
            self._refuse(*_TOO_LARGE)
        elif self._in_body:
            self.body_came(len(data), True)
        elif self._in_head and self._head_timer is None:  # it comes in pieces, which is rare except in attacks
            self._start_timer()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():  # else it was told already what is wrong
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._in_request = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._read_of_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._read_of_head(len(name) + len(value) + _AROUND_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._stop_timer()
        self._in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        try:
            super().on_body(body)
        except MemoryError:  # which the parser would take for a fault of the client
            self._refuse(*_NO_MEMORY)

    def on_message_complete(self) -> None:
        self._in_body = self._in_request = self._is_watched = False
        self._unread_bytes = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_head = self._in_body = False
        self._stop_timer()
        if self._body_timer is not None:
            self._body_timer.cancel()
        self._unset_keepalive_if_required()  # or it holds all of this until it is due, where the client reset
        super().connection_lost(exc)

    def _read_of_head(self, count: int) -> None:
        """`count` bytes of it. Raises where that is too much, so that the parser stops: later requests are not read."""
        self._unread_bytes = 0
        self._head_bytes += count
        if self._head_bytes > self.max_head_bytes:
            self._refuse(*_TOO_LARGE)
            raise ValueError(_TOO_LARGE[1])

    def _watch_body(self) -> None:
        """Sets a timer that is not canceled when the body is there: one serves for all the bodies of its time."""
        self._body_bytes, self._is_watched = 0, True
        self._body_timer = self.loop.call_later(self.stall_timeout_s, self._check_body)

    def _check_body(self) -> None:
        self._body_timer = None
        if not self._in_body:
            return
        is_slow = self._is_watched and self._body_bytes < self.min_body_bytes
        if is_slow and not self.flow.read_paused:  # else it waits for us
            self._refuse(*_STALLED)
        else:
            self._watch_body()

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._refuse, *_TOO_SLOW)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: bytes, why: bytes) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._may_answer():
            self.transport.write(
                b"HTTP/1.1 %s\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s" % (status, len(why), why)
            )
        self.transport.close()

    def _may_answer(self) -> bool:
        """Whether no answer is under way, of which another would be taken for a part."""
        if self.prediction is not None:
            return not self.prediction.answered
        busy: Any = self.cycle
        return busy is None or busy.response_complete or (self._in_body and not busy.response_started)
