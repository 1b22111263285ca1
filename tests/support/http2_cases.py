"""Valid and invalid HTTP/2 frames, and the reactions that RFC 9113 and RFC 7541 demand.

Tests of the session and of the data plane, and docs/reference/protocols.md, use this table. It contains the cases of
h2spec, rewritten, and some others.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from tests.support import http2_frames as h2
from tests.support.http2_frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Service,
    block,
    frame,
    message,
    settings,
)

WINDOW = 1 << 20  # the window of a stream and the longest frame, as the server announces them
_MOST = (2**31 - 1).to_bytes(4)
_RESET = frame(RST_STREAM, 0, 1, bytes(4))
_ERRORS = {
    getattr(h2, name): name
    for name in (
        *("PROTOCOL_ERROR", "FLOW_CONTROL_ERROR", "STREAM_CLOSED", "FRAME_SIZE_ERROR", "COMPRESSION_ERROR"),
        "ENHANCE_YOUR_CALM",
    )
}


class Ends(Enum):
    """The reaction of a server to an error."""

    CONNECTION = "GOAWAY"
    STREAM = "RST_STREAM"
    NOTHING = "taken"


class Case(NamedTuple):
    """Frames that are sent after the preface and SETTINGS. Frames that belong to a stream use stream 1."""

    section: str
    title: str
    sent: bytes
    ends: Ends
    error: int = NO_ERROR

    @property
    def outcome(self) -> str:
        return f"{self.ends.value} {_ERRORS.get(self.error, '')}".strip()

    def __str__(self) -> str:
        return self.title


def cases(service: Service, unanswered: bytes) -> list[Case]:
    """Returns the cases for a server of `service`. `unanswered` is a complete call on stream 1 that takes long."""
    found = _Cases(service, unanswered)
    return [*found.of_connection(), *found.of_stream(), *found.malformed(), *found.acceptable(), *found.compressed()]


def prefaces() -> list[Case]:
    """Returns the cases of wrong connection prefaces, which are the first bytes of a connection."""
    wrong = [
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"),
        ("a preface that ends wrong", PREFACE[:-1] + b"x"),
        ("PING before SETTINGS", PREFACE + frame(PING, payload=bytes(8))),
        ("SETTINGS that only acknowledge", PREFACE + frame(SETTINGS, ACK)),
    ]
    return [Case("3.4", title, sent, Ends.CONNECTION, PROTOCOL_ERROR) for title, sent in wrong]


# Header blocks that a decoder must refuse, and the sections of RFC 7541.
BROKEN_BLOCKS = (
    ("6.1", "index 0", "80"),
    ("2.3.3", "an index beyond the tables", "be"),
    ("2.3.3", "a name beyond the tables", "7f0000"),
    ("5.1", "an integer cut off", "ff"),
    ("5.1", "an integer beyond any use", "ffffffffff7f"),
    ("5.1", "an integer of endless zeros", "ff8080808080808080808000"),
    ("6.2", "no name", "40"),
    ("6.2", "no value", "400161"),
    ("5.2", "a value longer than the block", "40016105"),
    ("6.3", "a table larger than announced", "3fe21f"),
    ("4.2", "a change of the table behind a field", "8220"),
    ("4.2", "three changes of the table", "202020"),
    ("5.2", "the end of the string in a string", "0084ffffffff0161"),
    ("5.2", "more than 7 bits of padding", "00821fff0161"),
    ("5.2", "padding of zeros", "0081180161"),
    ("5.2", "half a code", "0081fe0161"),
)


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


class _Cases:
    def __init__(self, service: Service, unanswered: bytes) -> None:
        self.service, self.unanswered = service, unanswered
        self.head = block(service.head())
        self.open = frame(HEADERS, END_HEADERS, 1, self.head)  # stream 1 stays open for more frames
        self.whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, self.head)

    def of_connection(self) -> Iterator[Case]:
        for section, title, sent, error in (
            *self._sizes(),
            *self._states(),
            *self._places(),
            *self._padding(),
            *self._settings(),
            *self._windows(),
            *self._blocks(),
        ):
            yield Case(section, title, sent, Ends.CONNECTION, error)

    def _sizes(self) -> Iterator[tuple[str, str, bytes, int]]:
        long = bytes(WINDOW + 1)
        for section, title, sent in (
            ("4.2", "DATA beyond MAX_FRAME_SIZE", frame(DATA, 0, 1, long)),
            ("4.2", "HEADERS beyond MAX_FRAME_SIZE", frame(HEADERS, END_HEADERS, 1, long)),
            ("6.5", "SETTINGS of 5 bytes", frame(SETTINGS, payload=bytes(5))),
            ("6.5", "SETTINGS acknowledged with entries", frame(SETTINGS, ACK, payload=bytes(6))),
            ("6.7", "PING of 7 bytes", frame(PING, payload=bytes(7))),
            ("6.8", "GOAWAY of 7 bytes", frame(GOAWAY, payload=bytes(7))),
            ("6.9", "WINDOW_UPDATE of 3 bytes", frame(WINDOW_UPDATE, payload=bytes(3))),
            ("6.4", "RST_STREAM of 5 bytes", self.open + frame(RST_STREAM, 0, 1, bytes(5))),
            ("6.3", "PRIORITY of 4 bytes, no stream", frame(PRIORITY, 0, 1, bytes(4))),
        ):
            yield section, title, sent, FRAME_SIZE_ERROR

    def _states(self) -> Iterator[tuple[str, str, bytes, int]]:
        third = frame(HEADERS, END_HEADERS, 3, self.head)
        for section, title, sent in (
            ("5.1", "DATA of an idle stream", frame(DATA, 0, 1, b"x")),
            ("5.1", "DATA of a stream of the server's", self.open + frame(DATA, 0, 2, b"x")),
            ("5.1", "RST_STREAM of an idle stream", _RESET),
            ("5.1", "RST_STREAM of a stream of the server's", third + frame(RST_STREAM, 0, 2, bytes(4))),
            ("5.1", "WINDOW_UPDATE of an idle stream", frame(WINDOW_UPDATE, 0, 1, _u32(1))),
            ("5.1", "WINDOW_UPDATE of a stream of the server's", third + frame(WINDOW_UPDATE, 0, 2, _u32(1))),
            ("5.1", "CONTINUATION behind END_STREAM", self.unanswered + frame(CONTINUATION, END_HEADERS, 1)),
            ("5.1", "CONTINUATION behind RST_STREAM", self.open + _RESET + frame(CONTINUATION, END_HEADERS, 1)),
            ("5.1.1", "HEADERS of a stream of the server's", frame(HEADERS, END_HEADERS, 2, self.head)),
            ("5.1.1", "streams that count down", frame(HEADERS, END_HEADERS, 5, self.head) + self.open),
        ):
            yield section, title, sent, PROTOCOL_ERROR

    def _places(self) -> Iterator[tuple[str, str, bytes, int]]:
        for section, title, sent in (
            ("6.1", "DATA of the connection", frame(DATA, 0, 0, b"x")),
            ("6.2", "HEADERS of the connection", frame(HEADERS, END_HEADERS, 0, self.head)),
            ("6.3", "PRIORITY of the connection", frame(PRIORITY, 0, 0, bytes(5))),
            ("6.4", "RST_STREAM of the connection", frame(RST_STREAM, 0, 0, bytes(4))),
            ("6.5", "SETTINGS of a stream", frame(SETTINGS, 0, 1)),
            ("6.7", "PING of a stream", frame(PING, 0, 1, bytes(8))),
            ("6.8", "GOAWAY of a stream", frame(GOAWAY, 0, 1, bytes(8))),
            ("6.10", "CONTINUATION of the connection", frame(CONTINUATION, END_HEADERS, 0)),
            ("8.4", "a client that pushes", self.open + frame(PUSH_PROMISE, END_HEADERS, 1, _u32(2))),
        ):
            yield section, title, sent, PROTOCOL_ERROR

    def _padding(self) -> Iterator[tuple[str, str, bytes, int]]:
        padded = frame(HEADERS, PADDED | END_HEADERS, 1, b"\xff" + self.head[:200])
        unprioritized = frame(HEADERS, PRIORITIZED | END_HEADERS, 1, b"abcd")
        yield "6.1", "DATA without its padding", self.open + frame(DATA, PADDED, 1), FRAME_SIZE_ERROR
        yield "6.1", "more padding than DATA", self.open + frame(DATA, PADDED, 1, b"\x05abcd"), PROTOCOL_ERROR
        yield "6.2", "more padding than HEADERS", padded, PROTOCOL_ERROR
        yield "6.2", "HEADERS without their priority", unprioritized, FRAME_SIZE_ERROR

    def _settings(self) -> Iterator[tuple[str, str, bytes, int]]:
        yield "6.5.2", "ENABLE_PUSH 2", settings((ENABLE_PUSH, 2)), PROTOCOL_ERROR
        yield "6.5.2", "INITIAL_WINDOW_SIZE 2^31", settings((INITIAL_WINDOW_SIZE, 2**31)), FLOW_CONTROL_ERROR
        yield "6.5.2", "MAX_FRAME_SIZE 16,383", settings((MAX_FRAME_SIZE, 16383)), PROTOCOL_ERROR
        yield "6.5.2", "MAX_FRAME_SIZE 2^24", settings((MAX_FRAME_SIZE, 2**24)), PROTOCOL_ERROR
        yield "10.5", "SETTINGS without end", settings(*[(ENABLE_PUSH, 0)] * 101), ENHANCE_YOUR_CALM

    def _windows(self) -> Iterator[tuple[str, str, bytes, int]]:
        grown = self.unanswered + frame(WINDOW_UPDATE, 0, 1, _u32(2**31 - 65_536))
        yield "6.9", "a window that grows by nothing", frame(WINDOW_UPDATE, 0, 0, _u32(0)), PROTOCOL_ERROR
        yield "6.9.1", "a connection window of 2^31", frame(WINDOW_UPDATE, 0, 0, _MOST), FLOW_CONTROL_ERROR
        more = settings((INITIAL_WINDOW_SIZE, 65_536))
        yield "6.9.2", "SETTINGS that make a window too large", grown + more, FLOW_CONTROL_ERROR

    def _blocks(self) -> Iterator[tuple[str, str, bytes, int]]:
        begun = frame(HEADERS, 0, 1)
        for section, title, sent in (
            ("6.10", "CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1)),
            ("6.10", "CONTINUATION behind the end", self.open + frame(CONTINUATION, END_HEADERS, 1)),
            ("6.10", "CONTINUATION behind DATA", self.open + frame(DATA, 0, 1, b"x") + frame(CONTINUATION, 4, 1)),
            ("6.10", "PING within headers", begun + frame(PING, payload=bytes(8))),
            ("6.10", "PRIORITY within headers", begun + frame(PRIORITY, 0, 1, bytes(5))),
            ("6.10", "HEADERS within headers", begun + frame(HEADERS, END_HEADERS, 3, self.head)),
            ("6.10", "an unknown frame within headers", begun + frame(99)),
            ("6.10", "another's CONTINUATION", begun + frame(CONTINUATION, END_HEADERS, 3)),
        ):
            yield section, title, sent, PROTOCOL_ERROR
        halves = frame(HEADERS, 0, 1, bytes(17_000)) + frame(CONTINUATION, 0, 1, bytes(17_000))
        for title, sent in (
            ("CONTINUATION without end", begun + frame(CONTINUATION, 0, 1) * 33),
            ("headers without end", frame(HEADERS, 0, 1, bytes(34_000))),
            ("headers without end, in parts", halves),
        ):
            yield "10.5.1", title, sent, ENHANCE_YOUR_CALM

    def of_stream(self) -> Iterator[Case]:
        pseudo_trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, self.head)
        for section, title, sent, error in (
            ("5.1", "DATA behind END_STREAM", self.unanswered + frame(DATA, 0, 1, b"x"), STREAM_CLOSED),
            ("5.1", "HEADERS behind END_STREAM", self.unanswered + self.whole, STREAM_CLOSED),
            ("5.1", "DATA behind RST_STREAM", self.open + _RESET + frame(DATA, 0, 1, b"x"), STREAM_CLOSED),
            ("5.1", "HEADERS behind RST_STREAM", self.open + _RESET + self.whole, STREAM_CLOSED),
            ("6.3", "PRIORITY of 4 bytes", self.open + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
            ("6.9", "a stream's window that grows by nothing", self._updated(_u32(0)), PROTOCOL_ERROR),
            ("6.9.1", "a stream's window of 2^31", self._updated(_MOST), FLOW_CONTROL_ERROR),
            ("8.1", "trailers that end nothing", self.open + self.open, PROTOCOL_ERROR),
            ("8.1", "trailers with pseudo-header fields", self.open + pseudo_trailers, PROTOCOL_ERROR),
        ):
            yield Case(section, title, sent, Ends.STREAM, error)

    def _updated(self, increment: bytes) -> bytes:
        return self.open + frame(WINDOW_UPDATE, 0, 1, increment)

    def malformed(self) -> Iterator[Case]:
        head = self.service.head
        for section, title, fields in (
            ("8.3.1", "no method", head(without=":method")),
            ("8.3.1", "no scheme", head(without=":scheme")),
            ("8.3.1", "no path", head(without=":path")),
            ("8.3.1", "an empty path", [(":path", ""), *head(without=":path")]),
            ("8.3.1", "two paths", [(":path", "/"), *head()]),
            ("8.3.1", "two methods", [(":method", "POST"), *head()]),
            ("8.3.1", "two schemes", [(":scheme", "http"), *head()]),
            ("8.3", "a response's field", [(":status", "200"), *head()]),
            ("8.3", "an unknown pseudo-header field", [(":test", "x"), *head()]),
            ("8.3", "a pseudo-header field behind others", [*head(), (":method", "POST")]),
            ("8.2.1", "a line break", [(":authority", "a\nb"), *head(without=":authority")]),
            ("8.2.1", "a name in upper case", head(("Upper", "case"))),
            ("8.2.1", "no name", head(("", "nameless"))),
            ("8.2.1", "a name with a space", head(("a b", "spaced"))),
            ("8.2.1", "a null byte", head(("x", "a\0b"))),
            ("8.2.1", "space before a value", head(("x", " padded"))),
            ("8.2.1", "space behind a value", head(("x", "padded\t"))),
            ("8.2.2", "connection", head(("connection", "close"))),
            ("8.2.2", "transfer-encoding", head(("transfer-encoding", "chunked"))),
            ("8.2.2", "upgrade", head(("upgrade", "h2c"))),
            ("8.2.2", "te other than trailers", head(te="gzip")),
            ("8.1.1", "content-length that is no number", head(content_length="ten")),
            ("8.1.1", "two content-lengths", head(("content-length", "5"), ("content-length", "6"))),
        ):
            sent = frame(HEADERS, END_HEADERS, 1, block(fields))
            yield Case(section, title, sent, Ends.STREAM, PROTOCOL_ERROR)
        for title, announced, ended in (
            ("less content than announced", 11, END_STREAM),
            ("more content than announced", 9, 0),
        ):
            content = message(b"hello")
            sent = frame(HEADERS, END_HEADERS, 1, block(head(content_length=str(announced))))
            sent += frame(DATA, 0, 1, content[:4]) + frame(DATA, ended, 1, content[4:])
            yield Case("8.1.1", title, sent, Ends.STREAM, PROTOCOL_ERROR)
        sent = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(head(content_length="4")))
        yield Case("8.1.1", "no content where some was announced", sent, Ends.STREAM, PROTOCOL_ERROR)

    def acceptable(self) -> Iterator[Case]:
        head, opened = self.head, self.open
        parts = frame(HEADERS, 0, 1, head[:7]) + frame(CONTINUATION, 0, 1) + frame(CONTINUATION, 4, 1, head[7:])
        twice = settings((INITIAL_WINDOW_SIZE, 100), (INITIAL_WINDOW_SIZE, 65_535))
        for section, title, sent in (
            ("4.1", "an unknown frame", frame(99, 0xFF, 5, bytes(100))),
            ("4.1", "flags that mean nothing", frame(PING, 0xFE, payload=bytes(8))),
            ("4.1", "a reserved bit that is set", frame(PING, 0, 2**31, bytes(8))),
            ("6.5.2", "an unknown setting", settings((99, 7))),
            ("6.5.3", "a setting twice", twice),
            ("6.5.3", "SETTINGS acknowledged", frame(SETTINGS, ACK)),
            ("5.3.2", "PRIORITY of an idle stream", frame(PRIORITY, 0, 7, bytes(5))),
            ("5.3.2", "a stream that depends on itself", frame(PRIORITY, 0, 7, _u32(7) + b"\0")),
            ("6.8", "GOAWAY, which ends nothing of ours", frame(GOAWAY, payload=bytes(5000))),
            ("7", "GOAWAY of an unknown error", frame(GOAWAY, payload=bytes(4) + _u32(99))),
            ("7", "RST_STREAM of an unknown error", opened + frame(RST_STREAM, 0, 1, _u32(99))),
            ("6.7", "the answer to no PING", frame(PING, ACK, payload=bytes(8))),
            ("5.1", "RST_STREAM twice", opened + _RESET + _RESET),
            ("5.1", "WINDOW_UPDATE of a closed stream", opened + _RESET + frame(WINDOW_UPDATE, 0, 1, _u32(1))),
            ("6.2", "HEADERS with padding", frame(HEADERS, PADDED | 4, 1, b"\x03" + head + bytes(3)) + _RESET),
            ("6.2", "HEADERS with a priority", frame(HEADERS, PRIORITIZED | 4, 1, bytes(5) + head) + _RESET),
            ("6.10", "HEADERS in parts", parts + _RESET),
            ("8.2.2", "te in upper case", frame(HEADERS, 4, 1, block(self.service.head(te="Trailers"))) + _RESET),
        ):
            yield Case(section, title, sent, Ends.NOTHING)

    def compressed(self) -> Iterator[Case]:
        for section, title, broken in BROKEN_BLOCKS:
            sent = frame(HEADERS, END_HEADERS, 1, bytes.fromhex(broken))
            yield Case(f"RFC 7541, {section}", title, sent, Ends.CONNECTION, COMPRESSION_ERROR)
