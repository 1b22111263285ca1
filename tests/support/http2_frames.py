"""An HTTP/2 client that sends arbitrary frames, and receives the server's frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from tests.support.waiting import GIVE_UP_S

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 0x20
(
    NO_ERROR,
    PROTOCOL_ERROR,
    INTERNAL_ERROR,
    FLOW_CONTROL_ERROR,
    SETTINGS_TIMEOUT,
    STREAM_CLOSED,
    FRAME_SIZE_ERROR,
    REFUSED_STREAM,
    CANCEL,
    COMPRESSION_ERROR,
    CONNECT_ERROR,
    ENHANCE_YOUR_CALM,
) = range(12)
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
Fields = Iterable[tuple[str, str]]


class Frame(NamedTuple):
    type: int
    flags: int
    stream: int
    payload: bytes

    @property
    def error(self) -> int:
        """The error code of RST_STREAM and GOAWAY."""
        return int.from_bytes(self.payload[-4:] if self.type == RST_STREAM else self.payload[4:8])


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def settings(*entries: tuple[int, int]) -> bytes:
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *entry) for entry in entries))


def integer(value: int, prefix_bits: int, pattern: int = 0) -> bytes:
    """Encodes an integer (RFC 7541 section 5.1). `pattern` contains the bits above the prefix."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([pattern | value])
    encoded, value = [pattern | most], value - most
    while value >= 0x80:
        encoded.append(0x80 | value & 0x7F)
        value >>= 7
    return bytes([*encoded, value])


def literal(name: str, value: str, pattern: int = 0) -> bytes:
    """Encodes a header field as literals (RFC 7541 section 6.2). The pattern 0x40 adds it to the dynamic table."""
    return bytes([pattern]) + b"".join(integer(len(text), 7) + text.encode("latin-1") for text in (name, value))


def block(fields: Fields) -> bytes:
    return b"".join(literal(*field) for field in fields)


class Service(NamedTuple):
    """A gRPC method that responds at once."""

    path: str
    content: bytes
    answer: bytes

    def head(self, *more: tuple[str, str], without: str = "", **changed: str) -> list[tuple[str, str]]:
        """Returns the header fields of a call. The names in `changed` have `_` instead of `-`."""
        fields = {":method": "POST", ":scheme": "http", ":path": self.path, ":authority": "test"}
        fields |= {"content-type": "application/grpc", "te": "trailers"}
        fields |= {name.replace("_", "-"): value for name, value in changed.items()}
        return [(name, value) for name, value in fields.items() if name != without] + list(more)


def echo(method: str = "Unary") -> Service:
    """Returns a method of the echo server."""
    return Service(f"/echo.Echo/{method}", b"hello", b"hello")


def head(method: str = "Unary", *more: tuple[str, str], without: str = "", **changed: str) -> list[tuple[str, str]]:
    """Returns the header fields of a call of the echo server."""
    return echo(method).head(*more, without=without, **changed)


def message(content: bytes) -> bytes:
    """Returns a gRPC message in the form of a DATA frame's payload."""
    return b"\0" + len(content).to_bytes(4) + content


class Peer:
    """A connection to `port`. If `greet` is true, it first sends the preface and empty SETTINGS."""

    def __init__(
        self, port: int, greet: bool = True, source: str = "127.0.0.1", service: Service | None = None
    ) -> None:
        self.service = service or echo()
        self.socket = socket.create_connection(("127.0.0.1", port), GIVE_UP_S, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        if greet:
            self.send(PREFACE + settings())

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends bytes. A closed connection is ignored, because the server has sent the reason before."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def headers(self, stream: int, fields: Fields, flags: int = END_HEADERS) -> None:
        self.send(frame(HEADERS, flags, stream, block(fields)))

    def call(self, stream: int, method: str = "Unary", content: bytes = b"hello") -> None:
        """Sends a complete unary call."""
        self.headers(stream, head(method))
        self.send(frame(DATA, END_STREAM, stream, message(content)))

    def frames(self) -> Iterator[Frame]:
        """Yields all frames until the server closes the connection."""
        while True:
            while len(self._unread) < 9 or len(self._unread) < 9 + int.from_bytes(self._unread[:3]):
                try:
                    more = self.socket.recv(1 << 20)
                except ConnectionResetError:  # the server closed the connection with unread data
                    more = b""
                if not more:
                    assert self._unread == b"", "the server hung up within a frame"
                    return
                self._unread += more
            end = 9 + int.from_bytes(self._unread[:3])
            kind, flags, stream = struct.unpack_from(">BBI", self._unread, 3)
            payload, self._unread = self._unread[9:end], self._unread[end:]
            yield Frame(kind, flags, stream, payload)

    def expect(self, kind: int, stream: int = 0, flags: int = 0) -> Frame:
        """Skips frames until one has this type, this stream and these flags, and returns it."""
        for received in self.frames():
            if (received.type, received.stream) == (kind, stream) and received.flags & flags == flags:
                return received
            assert received.type != GOAWAY, received
        raise AssertionError(f"the server hung up before frame {kind} of stream {stream}")

    def read_responses(self) -> list[Frame]:
        """Returns all frames that the server sends in response to the frames so far.

        It waits for the responses to two PINGs, because content may follow the response to the first one.
        """
        return [*self._until_pong(b"at last?"), *self._until_pong(b"really??")]

    def _until_pong(self, opaque: bytes) -> Iterator[Frame]:
        self.send(frame(PING, payload=opaque))
        for received in self.frames():
            if (received.type, received.flags, received.payload) == (PING, ACK, opaque):
                return
            yield received
        raise AssertionError("the server hung up")

    def closing_error(self) -> int:
        """Returns the error code of the GOAWAY frame with which the server closed the connection."""
        *_, last = self.frames()
        assert last.type == GOAWAY, last
        return last.error

    def is_alive(self) -> bool:
        """Returns true if a call still succeeds."""
        stream = 2**31 - 1  # the highest stream number
        self.headers(stream, self.service.head())
        self.send(frame(DATA, END_STREAM, stream, message(self.service.content)))
        return self.expect(DATA, stream).payload == message(self.service.answer)
