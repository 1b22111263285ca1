"""HTTP/1.1 as the load needs it: a request made once, and responses that are only cut at their length."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

_RECEIVE_BYTES = 1 << 18
_OK = 200
LOST = 0  # instead of a status: the connection was cut before the answer was whole, or no answer came


def request_bytes(host: str, port: int, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}:{port}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True)
class Response:
    """`status` is `LOST` where none came; `keeps` says whether the connection can be used again."""

    status: int
    body: bytes
    keeps: bool


class Exchange:
    """One request at a time over one connection that does not block.

    A response that comes before the request is sent is taken, too: a server that is full answers the headers.
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
        """As much as the socket takes now. An error is left for `receive`, which sees it, too."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except OSError:
            return

    def receive(self) -> Response | None:
        """The response, once it is whole.

        Raises:
            ValueError: it does not say how long it is.
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
    """The answer to one request over a connection of its own; `LOST` where none came within `limit_s`."""
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
    """The response that `received` begins with; None while it is not whole.

    Raises:
        ValueError: it is a 200 that does not say how long it is.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    status_line, *lines = bytes(received[:end]).split(b"\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    status = int(status_line.split()[1])
    if b"content-length" not in headers and status != _OK:
        return Response(status, b"", False)  # an error in chunks: neither it nor later data is read
    if b"content-length" not in headers:
        raise ValueError(f"a response without Content-Length: {status_line.decode(errors='replace')}")
    length = int(headers[b"content-length"])
    if len(received) < end + 4 + length:
        return None
    body = bytes(received[end + 4 : end + 4 + length])
    return Response(status, body, headers.get(b"connection", b"").lower() != b"close")
