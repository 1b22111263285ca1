"""HTTP/1.1 as the load generator needs it: a request is built once, and of a response only the status and the length
are parsed."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

_RECEIVE_BYTES = 1 << 18
_OK = 200
LOST = 0  # instead of a status: the connection was cut before the response was complete, or no response came


def request_bytes(
    host: str, port: int, path: str, headers: Mapping[str, str], body: bytes, method: str = "POST"
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Response:
    """A response. `status` is `LOST` if none came; `keeps` is true if the connection can be reused."""

    status: int
    body: bytes
    keeps: bool


class Exchange:
    """One request at a time over one non-blocking connection.

    A response that arrives before the request was sent is accepted, too: a server with a full queue responds to the
    head.
    """

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.socket.connect_ex((host, port))
        self._unsent = memoryview(b"")
        self._received = bytearray()

    @property
    def is_sending(self) -> bool:
        return bool(self._unsent)

    def begin(self, request: bytes) -> None:
        self._unsent = memoryview(request)
        self._received.clear()
        self.send()

    def send(self) -> None:
        """Sends as much as the socket accepts now. Ignores errors, because `receive` gets the same error and reports
        it."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except OSError:
            return

    def receive(self) -> Response | None:
        """Returns the response, once it is complete.

        Raises:
            ValueError: the response has no length.
        """
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self._received += data
        response = parse(self._received)
        if response is None:
            return None if data else Response(LOST, b"", False)
        if self._unsent:
            return Response(response.status, response.body, False)
        return response

    def close(self) -> None:
        self.socket.close()


def ask(host: str, port: int, request: bytes, limit_s: float) -> Response:
    """Returns the response to one request over a separate connection; `LOST` if none came within `limit_s`."""
    exchange, ends = Exchange(host, port), time.monotonic() + limit_s
    try:
        exchange.begin(request)
        while (left_s := ends - time.monotonic()) > 0:
            writing = [exchange.socket] if exchange.is_sending else []
            readable, writable, _ = select.select([exchange.socket], writing, [], left_s)
            if writable:
                exchange.send()
            if readable and (response := exchange.receive()):
                return response
        return Response(LOST, b"", False)
    finally:
        exchange.close()


def parse(received: bytearray) -> Response | None:
    """Returns the response at the beginning of `received`; None while it is incomplete.

    Raises:
        ValueError: it is a 200 without a length.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    status_line, *lines = bytes(received[:end]).split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    status = int(status_line.split()[1])
    if b"content-length" not in headers and status != _OK:
        return Response(status, b"", False)  # an error response in chunks: neither the response nor later data is read
    if b"content-length" not in headers:
        raise ValueError(f"a response without Content-Length: {status_line.decode(errors='replace')}")
    length = int(headers[b"content-length"])
    if len(received) < end + 4 + length:
        return None
    body = bytes(received[end + 4 : end + 4 + length])
    return Response(status, body, headers.get(b"connection", b"").lower() != b"close")
