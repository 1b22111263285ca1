"""Compares the data plane's HTTP/1.1 parser with h11 (tests/native/plane/http1_probe.cc). Requests that both accept are
parsed equally, and if only one of them refuses a request, the reason is listed here.
"""

from __future__ import annotations

import random
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h11
import pytest

from tests.support.native import built_program

COUNT, SEED = 20_000, 1

# Requests that h11 accepts and the data plane refuses, by the data plane's message. Section numbers are of RFC 9112.
STRICTER = {
    "a line ends without a carriage return": "h11 accepts bare line feeds, which section 2.2 allows, not requires",
    "this is not HTTP": "a bare line feed after the request line",
    "a header contains a control character": "a bare line feed; h11 unfolds lines (section 5.2 permits either)",
    "a header has no colon": "the rest of a folded line",
    "the name of a header contains an invalid character": "the rest of a folded line",
    "the target is not a path": "the data plane is an origin server, not a proxy (section 3.2)",
    "the version of HTTP is not supported": "h11 lets its caller check versions",
    "invalid Host header": "h11 lets its caller check header values; section 3.2 requires servers to refuse this one",
    "the Host header is missing": "h11 requires it only in HTTP/1.1, not in 1.2 and later (section 2.3)",
    "the transfer coding is not supported": "h11 unfolds a line whose value follows in the next one",
    "the expectation is not supported": "h11 lets its caller check expectations (RFC 9110, section 10.1.1)",
    "invalid Content-Length": "h11 accepts a list of equal lengths (section 6.3)",
    "both Transfer-Encoding and Content-Length are given": "h11 uses the chunks; section 6.1 permits a refusal",
    "the body's chunks are not well formed": "h11 accepts spaces after a chunk's size",
}
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")


@dataclass(frozen=True)
class Read:
    """The result of a parser: `refused` with the reason, `unfinished`, or `whole` with the request's contents."""

    state: str
    why: str = ""
    request: tuple[bytes, ...] = ()


@pytest.fixture(scope="module")
def probe() -> Path:
    return built_program("http1_probe")


def parse_with_plane(probe: Path, requests: Sequence[bytes]) -> list[Read]:
    sent = b"".join(struct.pack("<I", len(each)) + each for each in requests)
    done = subprocess.run([probe], input=sent, capture_output=True, check=True)
    return [_read(line) for line in done.stdout.decode().splitlines()]


def _read(line: str) -> Read:
    state, _, rest = line.partition(" ")
    if state != "whole":
        return Read(state, rest)
    method, target, body, *flat = (bytes.fromhex(part[1:]) for part in rest.split(" "))
    fields: list[bytes] = []
    for name, value in zip(flat[::2], flat[1::2], strict=True):  # h11 reports names in this form
        is_length = name.lower() == b"content-length"
        if is_length and any(each.lower() == name.lower() for each in fields[::2]):
            continue
        fields += [name, value.lower() if name.lower() == b"transfer-encoding" else value]
    return Read(state, "", (method, target, body, *fields))


def parse_with_h11(request: bytes) -> Read:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=64 << 10)
    connection.receive_data(request)
    parts: list[bytes] = []
    body = b""
    try:
        while True:
            match connection.next_event():
                case h11.Request() as head:
                    fields = [part for pair in head.headers.raw_items() for part in pair]
                    parts = [head.method, head.target, b"", *fields]
                case h11.Data() as data:
                    body += data.data
                case h11.EndOfMessage():
                    parts[2] = body
                    return Read("whole", "", tuple(parts))
                case _:
                    return Read("unfinished")
    except h11.RemoteProtocolError as error:
        return Read("refused", str(error))


_LINES = [
    b"GET / HTTP/1.1",
    b"POST /v2/models/m/infer?a=b HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"PUT /%20 HTTP/1.0",
    b"GET / HTTP/1.2",
]
_FIELDS = [
    b"Host: localhost",
    b"Content-Length: 5",
    b"content-length:  5\t",
    b"Content-Length: 5, 5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding:\r\n chunked",
    b"Connection: close, x",
    b"Expect: 100-continue",
    b"X-Text: caf\xc3\xa9 \t and more",
    b"X-Empty:",
]
_BODIES = [b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n"]
_SPOILS = [
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b":",
    b",",
    b"\0",
    b"\x7f",
    b"\xff",
    b"0",
    b"5",
    b"-",
    b"+",
    b"chunked",
    b"1.1",
]


def request_of(chance: random.Random) -> bytes:
    """Returns a request that is mostly valid, with up to three damaged places."""
    fields = [b"Host: a", *chance.sample(_FIELDS[1:], chance.randrange(4))] if chance.random() < 0.9 else []
    request = b"\r\n".join([chance.choice(_LINES), *fields, b"", chance.choice(_BODIES)])
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        at = chance.randrange(len(request) + 1)
        request = request[:at] + chance.choice(_SPOILS) + request[at + chance.randrange(3) :]
    return request


def reason(request: bytes, plane: Read, h11_read: Read) -> str:
    """Returns why the two parsers may differ in this way, or an empty string if they may not."""
    match plane.state, h11_read.state:
        case "refused", "refused":
            return "refused"
        case _, "refused" if h11_read.why.startswith("conflicting Content-Length"):
            return "h11 compares lengths as texts: 05 is another than 5"
        case _, "refused" if request.startswith(b"\r\n"):
            return "the data plane passes over an empty line before a request (section 2.2)"
        case "refused", _:
            return plane.why if plane.why in STRICTER else ""
        case "unfinished", _ if _BARE_LINE_FEED.search(request) or b"\r\n\r\n" not in request:
            return "the data plane waits for the end of the head, and takes no bare line feed for one"
    return ""


def test_generated_and_damaged_requests_are_read_like_by_h11(probe: Path) -> None:
    chance = random.Random(SEED)
    requests = [request_of(chance) for _ in range(COUNT)]
    seen = Counter[str]()
    wrong = []
    for request, plane, h11_read in zip(
        requests, parse_with_plane(probe, requests), map(parse_with_h11, requests), strict=True
    ):
        why = plane.state if plane == h11_read else reason(request, plane, h11_read)
        seen[why] += 1
        if not why:
            wrong.append((request, plane, h11_read))
    assert not wrong, wrong[:3]
    assert seen.keys() >= STRICTER.keys()
    assert min(seen[state] for state in ("whole", "refused", "unfinished")) > COUNT // 50
