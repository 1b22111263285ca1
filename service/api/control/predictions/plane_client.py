"""HTTP requests to this server's data plane, over connections that stay open.

The package httpx needs several times as much processor time for a request, which matters because one request of a user
becomes a request for each of its texts. The package httptools, which uvicorn uses too, parses the responses.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httptools

_MOST_CONNECTIONS = 64
_TIMEOUT_S = 600.0  # the data plane ends requests by their own deadlines


@dataclass
class PlaneResponse:
    """A response.

    Attributes:
        headers: the values by name in lower case.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Parses the content. Raises `ValueError` if it is not JSON."""
        return json.loads(self.content)


class PlaneClient:
    """A pool of connections to one address. For one event loop."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """
        Args:
            context: the TLS context; None for plain text.
        """
        self._host, self._port, self._context = host, port, context
        self._idle: deque[_Connection] = deque()
        self._free = asyncio.Semaphore(_MOST_CONNECTIONS)
        self._is_closed = False

    async def request(self, method: str, path: str, headers: Mapping[str, str], content: bytes = b"") -> PlaneResponse:
        """Returns the response. If a connection that was open ends before a response begins, the request is sent again.

        Raises:
            OSError: the connection failed, or the response took too long.
        """
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = [f"{method} {path} HTTP/1.1", f"host: {host}:{self._port}", f"content-length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        data = "\r\n".join([*lines, "", ""]).encode("latin-1") + content
        async with self._free, asyncio.timeout(_TIMEOUT_S):
            while self._idle:
                connection = self._idle.pop()
                if (response := await self._exchange(connection, data)) is not None:
                    return response
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._context)
            if (response := await self._exchange(connection, data)) is not None:
                return response
        raise ConnectionResetError("the connection ended before a response")

    async def _exchange(self, connection: _Connection, data: bytes) -> PlaneResponse | None:
        """Returns None if the connection ended before a response began."""
        is_reusable = False
        try:
            response = await connection.exchange(data)
            is_reusable = connection.is_open and not self._is_closed
        finally:
            if not is_reusable:
                connection.close()
        if is_reusable:
            self._idle.append(connection)
        return response

    def close(self) -> None:
        """Closes the idle connections, and the others after their responses."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._response = PlaneResponse()
        self._body: list[bytes] = []
        self._waiting: asyncio.Future[PlaneResponse | None] | None = None
        self.is_open = True

    async def exchange(self, data: bytes) -> PlaneResponse | None:
        """Sends a request, and returns its response; None if the connection ended before the response began."""
        if self._transport is None or not self.is_open:
            return None
        self._parser, self._response, self._body = httptools.HttpResponseParser(self), PlaneResponse(), []
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return await self._waiting

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    # the methods of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.close()  # the data plane sends nothing without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the response is not well-formed HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._waiting is None or self._waiting.done():
            return
        if self._response.headers or self._body:
            self._fail(ConnectionResetError("the connection ended within a response"))
        else:
            self._waiting.set_result(None)

    def _fail(self, error: OSError) -> None:
        self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    # the methods that httptools calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self._response.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._response.status = self._parser.get_status_code()
        self._response.content = b"".join(self._body)
        self.is_open = self.is_open and self._parser.should_keep_alive()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._response)
