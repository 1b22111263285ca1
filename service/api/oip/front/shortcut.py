"""A client's connection, on which predict requests bypass the web framework.

Between two predictions a model has swept the caches, so what a request costs is how much code it touches. One of the
usual form (`exchange.Head`) is therefore neither parsed header by header nor passed through the frameworks: its body is
received where its tensors will be read, and its answer leaves in one piece. All else goes on to uvicorn. A client that
sends one kind of request may send the other kind next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from starlette.types import ASGIApp

from service.api.oip.front.connection import Connection
from service.api.oip.front.exchange import Arriving, Exchange, Head
from service.core.settings import Settings

if TYPE_CHECKING:
    from service.api.oip.front import FrontServer
    from service.native import Seat

# What arrives is read here and looked at before anything else runs: one is enough for all connections of a process.
_ARRIVED = bytearray(64 << 10)
_VIEW = memoryview(_ARRIVED)
_PREDICTS = b"POST /v2/models/"
_FAREWELL_S = 2.0  # until then a client has read what it was sent last


@dataclass(frozen=True)
class Shortcut:
    """The predict path that bypasses the rest of the application: an application's `state.shortcut`.

    Attributes:
        predict: answers predict requests, with all that surrounds them in the application.
        longest_bytes: the longest body that it takes.
    """

    predict: ASGIApp
    longest_bytes: int


class Shortened(asyncio.BufferedProtocol):
    """A connection that takes the shortcut of its application, if that has one."""

    def __init__(self, others: Connection) -> None:
        """`others` is the same connection for requests of all other kinds."""
        self._others, self._state = others, others.server_state
        app: Any = others.config.app
        self._shortcut: Shortcut | None = getattr(app.state, "shortcut", None)
        self._arriving: Arriving | None = None  # the body of a prediction, be that answered or not
        self._early = b""  # what came after a prediction, and waits for its answer
        self._is_last = False
        self.received = b""  # before it was ours
        self.seat: Seat | None = None  # of a connection that was the front's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._others.connection_made(self._transport)
        self._state.connections.discard(self._others)
        self._state.connections.add(self)  # type: ignore[arg-type]  # which get `shutdown`
        if self.received:
            self._arrived(self.received, len(self.received))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.seat is not None:
            self.seat.leave()
        self._state.connections.discard(self)
        if self._others.prediction is not None:
            self._others.prediction.leave()
        self._others.connection_lost(exc)

    def pause_writing(self) -> None:
        self._others.pause_writing()

    def resume_writing(self) -> None:
        self._others.resume_writing()

    def shutdown(self) -> None:
        """Ends the connection, after the answer that is under way."""
        if self._others.prediction is None:
            self._others.shutdown()
            self._hang_up()
        else:
            self._is_last = True

    def _hang_up(self) -> None:
        """Under TLS a closed connection waits for the client to close it too, which may take minutes."""
        if self._transport.is_closing() and self._transport.get_extra_info("sslcontext") is not None:
            self._others.loop.call_later(_FAREWELL_S, self._transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _VIEW if self._arriving is None else self._arriving.rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._arriving is not None:
            self._body_arrived(nbytes)
        elif self._others.prediction is not None:
            self._wait_with(bytes(_VIEW[:nbytes]))
        elif not (_ARRIVED.startswith(_PREDICTS) and self._goes_back(bytes(_VIEW[:nbytes]))):
            self._arrived(_ARRIVED, nbytes)

    def _goes_back(self, received: bytes) -> bool:
        """Whether the next request is one for the front, to which the connection goes."""
        front: FrontServer | None = getattr(self._others.config.app.state, "front", None)  # type: ignore[union-attr]
        if front is None or self._others.is_busy or not front.takes(received):
            return False
        if self._transport.get_write_buffer_size() > 0:  # of an answer, which would be lost in its middle
            return False
        front.give_back(self._transport, received)
        return True

    def _arrived(self, data: bytes | bytearray, count: int) -> None:
        """The first `count` bytes of `data` came, and no prediction is under way."""
        shortcut = None if self._others.is_busy else self._shortcut
        within = min(count, self._others.max_head_bytes)
        head = Head.of(data, within, shortcut.longest_bytes) if shortcut else None
        arriving = _room_for(head) if head else None
        view = memoryview(data)
        if arriving is None or head is None or shortcut is None:
            self._others.data_received(view[:count])  # type: ignore[arg-type]  # the parser takes any buffer
            return
        self._others.rest()
        self._ask(shortcut.predict, head)
        self._arriving = arriving
        end = min(count, head.end + head.body_bytes)
        arriving.rest[: end - head.end] = view[head.end : end]
        if end < count:
            self._wait_with(bytes(view[end:count]))
        self._body_arrived(end - head.end)

    def _ask(self, predict: ASGIApp, head: Head) -> None:
        """At once: a refused client need not send the body first."""
        scope = head.scope(self._others.scheme, self._others.client)
        self._others.prediction = exchange = Exchange(self._transport, scope, self._state.default_headers)
        task = self._others.loop.create_task(exchange.run(predict))
        self._state.tasks.add(task)
        task.add_done_callback(self._answered)

    def _wait_with(self, early: bytes) -> None:
        self._early += early
        self._others.flow.pause_reading()

    def _body_arrived(self, count: int) -> None:
        arriving = self._arriving
        assert arriving is not None
        complete = arriving.arrived(count)
        self._others.body_came(count, not complete)
        if complete:
            self._arriving = None
            if self._others.prediction is None:  # it was refused by its head
                self._go_on()
            else:
                self._others.prediction.body_arrived(arriving.whole)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._others.prediction = None
        self._state.tasks.discard(task)
        self._state.total_requests += 1
        if self._is_last:
            self._transport.close()
            self._hang_up()
        if self._transport.is_closing():
            return
        self._others.keep_alive()
        if self._arriving is None:
            self._go_on()

    def _go_on(self) -> None:
        """The next request may come, or has come already."""
        self._others.flow.resume_reading()
        if early := self._early:
            self._early = b""
            if not self._goes_back(early):
                self._arrived(early, len(early))


def _room_for(head: Head) -> Arriving | None:
    """A buffer for the body. None if there is no memory for it: a later reader of the body reports that, if it is still
    so.
    """
    try:
        return Arriving(head.json_bytes, head.body_bytes)
    except MemoryError:
        return None


def connections(settings: Settings) -> Callable[..., asyncio.BaseProtocol]:
    """A factory of uvicorn's connections, with the limits of `settings`."""

    class Limited(Connection):
        head_timeout_s, max_head_bytes = settings.head_timeout_s, settings.max_head_bytes
        stall_timeout_s = settings.stall_timeout_s
        min_body_bytes = settings.min_body_bytes

    return lambda **options: Shortened(Limited(**options))
