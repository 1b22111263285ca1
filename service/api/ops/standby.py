"""Responds in place of the server while it is down: sends 503 with Retry-After, on the server's listening socket.

This module implements only the part of HTTP that such a response needs. A request's body is read and discarded, up to
its end or for a limited time. If the connection were reset while a client is sending, the client would not see the
response.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import uuid
from contextlib import suppress
from functools import partial

from service.api.documents import MEDIA_TYPE, document, title_of
from service.core.errors import Restarting

_logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0
_MOST_AT_ONCE = 500
_HEAD_BYTES = 64 << 10
_RETRY_AFTER_S = 1


class Standby:
    """Responds to requests while the server is down. Runs on the event loop of the process that owns the socket. `tls`
    is set if the server uses HTTPS.
    """

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._listener, self._tls = listener, tls
        self._detail = ""
        self._answers: set[asyncio.Task[None]] = set()
        listener.setblocking(False)

    def begin(self, detail: str) -> None:
        """Starts to accept connections. `detail` is the reason why the server is down."""
        self._detail = detail
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def end(self) -> None:
        """Stops accepting connections."""
        asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:  # the server listens on the same socket and accepted the connection first
            return
        except OSError as error:
            _logger.warning("cannot accept a connection: %s", error)
            return
        if len(self._answers) >= _MOST_AT_ONCE:
            connection.close()
            return
        answer = asyncio.ensure_future(self._answer(connection))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)

    async def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_S):
                reader, writer = await self._streams(connection)
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_response(head, self._detail))
                    if writer.can_write_eof():
                        writer.write_eof()
                    while await reader.read(1 << 16):
                        pass
                finally:
                    writer.close()

    async def _streams(self, connection: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Wraps an accepted connection in streams, as `asyncio.start_server` does."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection, ssl=self._tls)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _response(head: bytes, detail: str) -> bytes:
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if path == "/v2/health/live":  # a failed liveness probe would cause a restart, which would not help
        return _rendered("200 OK", "application/json", b'{"live": true}', method)
    request_id = uuid.uuid4().hex
    render = partial(document, 503, Restarting.code, title_of(Restarting), detail, {"hint": "try again later"})
    extra = f"retry-after: {_RETRY_AFTER_S}\r\nx-request-id: {request_id}\r\n"
    return _rendered("503 Service Unavailable", MEDIA_TYPE, render(path, request_id), method, extra)


def _rendered(status: str, media_type: str, body: bytes, method: str, extra: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {len(body)}\r\n{extra}"
    return f"{head}connection: close\r\n\r\n".encode() + (b"" if method == "HEAD" else body)
