"""Valid and invalid HTTP/1.1 requests, and the responses that RFC 9112 demands.

Both a test of the data plane and docs/reference/protocols.md use this table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

LIVE = "/v2/health/live"


class Case(NamedTuple):
    """A request, which is the first on its connection.

    Attributes:
        statuses: the statuses of the responses.
        is_kept: true if the connection stays open for the next request. If false, bytes that follow must not be
            interpreted as a request.
    """

    section: str
    title: str
    sent: bytes
    statuses: tuple[int, ...] = (400,)
    is_kept: bool = False

    @property
    def outcome(self) -> str:
        return f"{', '.join(map(str, self.statuses))}{'' if self.is_kept else ', closed'}"

    def __str__(self) -> str:
        return self.title


def cases(path: str, body: bytes) -> list[Case]:
    """Returns the cases for a server that responds with 200 to `body` at `path`, and with 400 to a body of another
    size.
    """
    return [*_lines(), *_targets(), *_fields(), *_lengths(path, body), *_chunks(path, body), *_connections()]


def _get(*fields: str, line: str = f"GET {LIVE} HTTP/1.1", host: str = "Host: localhost") -> bytes:
    return "\r\n".join([line, *([host] if host else []), *fields, "", ""]).encode("latin-1")


def _lines() -> Iterator[Case]:
    yield Case("2.2", "an empty line before the request", b"\r\n" + _get(), (200,), is_kept=True)
    yield Case("2.2", "lines that end with a line feed alone", _get().replace(b"\r\n", b"\n"))
    yield Case("2.2", "one such line", f"GET {LIVE} HTTP/1.1\nHost: localhost\r\n\r\n".encode())
    yield Case("2.2", "a carriage return within a line", _get("X: a\rb"))
    yield Case("2.2", "space before the first header", f"GET {LIVE} HTTP/1.1\r\n Host: localhost\r\n\r\n".encode())
    yield Case("2.3", "HTTP/2.0 in a request line", _get(line=f"GET {LIVE} HTTP/2.0"), (505,))
    yield Case("2.3", "HTTP/1.2, which is taken for 1.1", _get(line=f"GET {LIVE} HTTP/1.2"), (200,), is_kept=True)
    yield Case("2.3", "a version in lower case", _get(line=f"GET {LIVE} http/1.1"))
    yield Case("3", "no version", _get(line=f"GET {LIVE}"))
    yield Case("3", "no target", _get(line="GET HTTP/1.1"))
    yield Case("3", "two spaces in the request line", _get(line=f"GET  {LIVE} HTTP/1.1"))
    yield Case("3", "a target with a space", _get(line="GET /v2/health live HTTP/1.1"))
    yield Case("3", "what is not HTTP", b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
    yield Case("3", "a client that speaks TLS, which waits for an answer", b"\x16\x03\x01\x02\x00\x01")
    yield Case("3.1", "a method that is no token", _get(line=f"G(T {LIVE} HTTP/1.1"))
    yield Case("3.1", "a method that nobody knows", _get(line=f"FOO {LIVE} HTTP/1.1"), (405,), is_kept=True)
    yield Case(
        "3.1", "a method in lower case, which is another", _get(line=f"get {LIVE} HTTP/1.1"), (405,), is_kept=True
    )


def _targets() -> Iterator[Case]:
    absolute = _get(line=f"GET http://localhost{LIVE} HTTP/1.1")
    yield Case("3.2.2", "a target with scheme and authority", absolute, (200,), is_kept=True)
    yield Case("3.2.3", "CONNECT, which is for proxies", _get(line="CONNECT localhost:80 HTTP/1.1"))
    yield Case("3.2", "a target that is no path", _get(line="GET v2 HTTP/1.1"))
    yield Case("3.2", "a target with a control character", _get(line=f"GET {LIVE}\x01 HTTP/1.1"))
    yield Case("3.2", "no Host", _get(host=""))
    yield Case("3.2", "two Hosts", _get("Host: localhost"))
    yield Case("3.2", "a Host that is none", _get(host="Host: a b"))
    yield Case("3.2", "a Host with a path", _get(host="Host: localhost/x"))
    yield Case("3.2", "an empty Host", _get(host="Host:"), (200,), is_kept=True)
    yield Case("3.2", "a Host that is an address of IPv6", _get(host="Host: [::1]:8080"), (200,), is_kept=True)
    yield Case("3.2", "no Host in HTTP/1.0", _get(line=f"GET {LIVE} HTTP/1.0", host=""), (200,))


def _fields() -> Iterator[Case]:
    yield Case("5", "a header without a colon", _get("Header"))
    yield Case("5", "a header without a name", _get(": x"))
    yield Case("5", "an empty value", _get("X:"), (200,), is_kept=True)
    yield Case("5", "tabs and spaces around a value", _get("X: \t a \t "), (200,), is_kept=True)
    yield Case("5.1", "a space before the colon", _get("X : a"))
    yield Case("5.1", "a name that is no token", _get("X(: a"))
    yield Case("5.2", "a folded line", _get("X: a\r\n b"))
    yield Case("5.5 of RFC 9110", "a null byte in a value", _get("X: a\0b"))
    yield Case("5.5 of RFC 9110", "bytes beyond ASCII in a value", _get("X: \xe9"), (200,), is_kept=True)
    yield Case("5.4 of RFC 9110", "a head beyond 64 KiB", _get("X: " + "a" * (65 << 10)), (431,))
    yield Case("5.4 of RFC 9110", "101 headers", _get(*["X: a"] * 100), (431,))
    yield Case("10.1.1 of RFC 9110", "an expectation that nobody knows", _get("Expect: wonders"), (417,))


def _post(path: str, body: bytes, *fields: str, version: str = "1.1") -> bytes:
    return _get(*fields, line=f"POST {path} HTTP/{version}") + body


def _lengths(path: str, body: bytes) -> Iterator[Case]:
    size = len(body)
    length, chunked = f"Content-Length: {size}", "Transfer-Encoding: chunked"
    yield Case("6.2", "a body of a length", _post(path, body, length), (200,), is_kept=True)
    yield Case("6.3", "neither length nor chunks: no body", _post(path, b""), (400,), is_kept=True)
    yield Case("6.3", "the same length twice", _post(path, body, length, length), (200,), is_kept=True)
    yield Case("6.3", "two lengths", _post(path, body, length, "Content-Length: 1"))
    yield Case("6.3", "a list of lengths", _post(path, body, f"{length}, {size}"))
    for title, text in (
        ("a negative length", f"-{size}"),
        ("a length with a sign", f"+{size}"),
        ("a length in hexadecimal", f"0x{size:x}"),
        ("an empty length", ""),
        ("a length beyond 64 bits", "99999999999999999999"),
    ):
        yield Case("6.2", title, _post(path, body, f"Content-Length: {text}"))
    yield Case("6.1", "chunks and a length", _post(path, b"0\r\n\r\n", chunked, length))
    yield Case("6.1", "chunks in HTTP/1.0", _post(path, b"0\r\n\r\n", chunked, version="1.0"))
    yield Case("6.1", "Transfer-Encoding twice", _post(path, b"0\r\n\r\n", chunked, chunked))
    for title, coding in (
        ("another coding than chunked", "gzip"),
        ("codings before chunked", "gzip, chunked"),
        ("chunked that is not the last", "chunked, identity"),
        ("chunked with something before it", "\vchunked"),
    ):
        status = 400 if "\v" in coding else 501
        yield Case("6.1", title, _post(path, b"0\r\n\r\n", f"Transfer-Encoding: {coding}"), (status,))


def _chunks(path: str, body: bytes) -> Iterator[Case]:
    half, size = len(body) // 2, f"{len(body):x}".encode()
    halves = b"%x\r\n%b\r\n%X\r\n%b\r\n" % (half, body[:half], len(body) - half, body[half:])
    whole = size + b"\r\n" + body + b"\r\n"
    for title, taken in (
        ("chunks", halves + b"0\r\n\r\n"),
        ("a size with zeros before it", b"000" + whole + b"0\r\n\r\n"),
        ("a last chunk of several zeros", whole + b"000\r\n\r\n"),
        ("an extension", size + b';name="value"' + whole[len(size) :] + b"0\r\n\r\n"),
        ("trailers", whole + b"0\r\nX-Checksum: 7\r\nX-Empty:\r\n\r\n"),
    ):
        yield Case("7.1", title, _chunked(path, taken), (200,), is_kept=True)
    for title, broken in (
        ("a size that is no number", b"g\r\n"),
        ("a size in C's hexadecimal", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("a negative size", b"-1\r\n"),
        ("no size", b"\r\n"),
        ("a space before a size", b" " + whole),
        ("a size beyond 60 bits", b"fffffffffffffffff\r\n"),
        ("a line feed alone behind a size", size + b"\n" + body),
        ("more content than the size says", b"5\r\nhello!\r\n"),
        ("an extension without end", b"5;" + b"a" * (20 << 10)),
        ("an extension with a null byte", size + b";a\0" + whole[len(size) :] + b"0\r\n\r\n"),
        ("a trailer that ends with a line feed alone", whole + b"0\r\nX: a\n\r\n"),
        ("trailers that end with a line feed alone", whole + b"0\r\nX: a\r\n\n"),
        ("a carriage return within a trailer", whole + b"0\r\nX: a\rb\r\n\r\n"),
        ("a trailer without a colon", whole + b"0\r\nTrailer\r\n\r\n"),
        ("a trailer without a name", whole + b"0\r\n: a\r\n\r\n"),
        ("a space before the colon of a trailer", whole + b"0\r\nX : a\r\n\r\n"),
        ("a folded trailer", whole + b"0\r\nX: a\r\n b\r\n\r\n"),
        ("a null byte in a trailer", whole + b"0\r\nX: a\0b\r\n\r\n"),
        ("trailers without end", whole + b"0\r\n" + b"X: a\r\n" * 4000),
    ):
        yield Case("7.1", title, _chunked(path, broken))


def _chunked(path: str, chunks: bytes) -> bytes:
    return _post(path, chunks, "Transfer-Encoding: chunked")


def _connections() -> Iterator[Case]:
    old = f"GET {LIVE} HTTP/1.0"
    yield Case("9.3", "HTTP/1.1 keeps its connection", _get(), (200,), is_kept=True)
    yield Case("9.3", "HTTP/1.0 does not", _get(line=old), (200,))
    yield Case("9.3", "unless it asks for it", _get("Connection: Keep-Alive", line=old), (200,), is_kept=True)
    yield Case("9.3.2", "requests before their answers", _get() * 3, (200, 200, 200), is_kept=True)
    yield Case("9.6", "close", _get("Connection: close"), (200,))
    yield Case("9.6", "close in upper case, among others", _get("Connection: x, CLOSE"), (200,))
    yield Case("9.6", "close and keep-alive", _get("Connection: keep-alive, close"), (200,))
