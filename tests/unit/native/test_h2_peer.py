"""Compares the HTTP/2 session with the package `h2` (tests/native/h2/session_probe.cc). Both interpret generated and
damaged connections equally, frame by frame, and if they differ, the reason is listed here.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError

from tests.support.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
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
    block,
    frame,
    settings,
)
from tests.support.native import built_program

CONNECTIONS, SEED = 20_000, 1

# The meaning of a frame, (what, stream, about), as `session_probe.cc` prints it.
Meaning = list[tuple[str, int, bytes | int]]


@pytest.fixture(scope="module")
def program() -> Path:
    return built_program("session_probe")


def interpret_with_plane(program: Path, connections: Sequence[Sequence[bytes]]) -> list[list[Meaning]]:
    sent = bytearray()
    for pieces in connections:
        sent += struct.pack("<I", len(pieces))
        for piece in pieces:
            sent += struct.pack("<I", len(piece)) + piece
    output = subprocess.run([program], input=bytes(sent), capture_output=True, check=True).stdout.decode()
    return [[_meaning(piece) for piece in line.split("|")[:-1]] for line in output.splitlines()]


def _meaning(output: str) -> Meaning:
    words = output.split()
    meaning: Meaning = []
    for what, stream, about in zip(words[::3], words[1::3], words[2::3], strict=True):
        meaning.append((what, int(stream), about.encode() if about.startswith("=") else int(about)))
    lost = {stream for what, stream, _ in meaning if what == "stream-error"}
    if any(what == "connection-error" for what, *_ in meaning):  # an error of the connection ends all streams
        return [it for it in meaning if it[0] != "reset"]
    return [it for it in meaning if it[0] != "reset" or it[1] not in lost]


def interpret_with_h2(pieces: Sequence[bytes]) -> list[Meaning]:
    connection = H2Connection(H2Configuration(client_side=False, header_encoding=False))
    connection.initiate_connection()
    meanings: list[Meaning] = []
    for piece in pieces:
        meaning: Meaning = []
        connection.clear_outbound_data_buffer()
        try:
            for event in connection.receive_data(piece):
                meaning += _of(connection, event)
        except ProtocolError as error:
            return [*meanings, [*meaning, ("connection-error", 0, int(error.error_code))]]
        meanings.append([*meaning, *_stream_errors(connection.data_to_send())])
    return meanings


def _stream_errors(answered: bytes) -> Meaning:
    meaning: Meaning = []
    while answered:
        length, kind, stream = int.from_bytes(answered[:3]), answered[3], int.from_bytes(answered[5:9])
        if kind == RST_STREAM:
            meaning.append(("stream-error", stream, int.from_bytes(answered[9:13])))
        answered = answered[9 + length :]
    return meaning


def _of(connection: H2Connection, event: Any) -> Meaning:
    match event:
        case events.RequestReceived():
            fields = "".join(f"={bytes(name).hex()}={bytes(value).hex()}" for name, value in event.headers)
            return [("request", event.stream_id, fields.encode())]
        case events.DataReceived():
            if event.flow_controlled_length:
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            return [("data", event.stream_id, b"=" + event.data.hex().encode())] if event.data else []
        case events.StreamEnded():
            return [("end", event.stream_id, b"=")]
        case events.StreamReset() if event.remote_reset:
            return [("reset", event.stream_id, int(event.error_code))]
    return []


_HEAD = [(":method", "POST"), (":scheme", "http"), (":path", "/a/B"), (":authority", "a"), ("te", "trailers")]
_HEADS = [
    *[_HEAD] * 30,
    [*_HEAD, ("content-length", "5")],
    [*_HEAD, ("x", "")],
    _HEAD[:3],
    _HEAD[1:],
    [*_HEAD, (":path", "/")],
    [(":path", ""), *_HEAD[:2]],
    [("x", "y"), *_HEAD],
    [*_HEAD, ("Upper", "x")],
    [*_HEAD, ("connection", "close")],
    [*_HEAD[:4], ("te", "gzip")],
    [*_HEAD, (":status", "200")],
    [*_HEAD, ("x", " y")],
    [*_HEAD, ("x", "a\nb")],
    [*_HEAD, ("content-length", "x")],
    [("x-trailer", "1")],
]
_CODES = (0, 1, 8, 99)
# Entries of SETTINGS.
_ENTRIES = ((1, 0), (1, 4096), (2, 0), (2, 2), (3, 7), (4, 10), (4, 2**31), (5, 16384), (5, 1), (99, 1))


_MOST = 2**31 - 1


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


class Client:
    """Frames of one connection, mostly of streams that are open."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._last = chance, -1

    def stream(self) -> int:
        if self._chance.random() < 0.06:
            return self._chance.randrange(12)
        return max(1, self._last - 2 * self._chance.choice((0, 0, 0, 1, 2)))

    def pieces(self) -> list[bytes]:
        first = [PREFACE + settings()] if self._chance.random() < 0.97 else [PREFACE, frame(PING, payload=bytes(8))]
        return [*first, *(piece for _ in range(self._chance.randrange(1, 10)) for piece in self.frames())]

    def frames(self) -> list[bytes]:
        chance = self._chance
        make = chance.choice(
            [self.head] * 5 + [self.data] * 4 + [self.reset, self.window, self.of_connection, self.odd, self.trailers]
        )
        frames = make()
        if chance.random() < 0.04:
            at = chance.randrange(len(frames[0]))
            spoilt = bytearray(frames[0])
            spoilt[at] ^= 1 << chance.randrange(8)
            spoilt[:3] = frames[0][:3]  # if the length changes, the next frame becomes part of this one
            frames[0] = bytes(spoilt)
        return frames

    def head(self) -> list[bytes]:
        chance = self._chance
        if chance.random() < 0.9:
            self._last += 2
            stream = max(1, self._last)
        else:
            stream = self.stream()
        return self.block(stream, block(chance.choice(_HEADS)), chance.choice((0, 0, END_STREAM)))

    def trailers(self) -> list[bytes]:
        fields = self._chance.choice(([("x-trailer", "1")], [("x-trailer", "1")], [(":path", "/")], [("te", "x")]))
        return self.block(self.stream(), block(fields), self._chance.choice((0, END_STREAM, END_STREAM)))

    def block(self, stream: int, content: bytes, flags: int) -> list[bytes]:
        chance = self._chance
        if chance.random() < 0.2:
            content, flags = bytes([3]) + content + bytes(3), flags | PADDED
        elif chance.random() < 0.2:
            depends = _u32(chance.choice((0, stream, 11)))
            content, flags = depends + b"\x10" + content, flags | PRIORITIZED
        if chance.random() < 0.8:
            return [frame(HEADERS, flags | END_HEADERS, stream, content)]
        at = chance.randrange(len(content)) if not flags & (PADDED | PRIORITIZED) else len(content)
        last = END_HEADERS if chance.random() < 0.95 else 0
        other = stream if chance.random() < 0.95 else stream + 2
        return [frame(HEADERS, flags, stream, content[:at]), frame(CONTINUATION, last, other, content[at:])]

    def data(self) -> list[bytes]:
        chance = self._chance
        content = chance.choice((b"", b"hello", b"hello", b"x" * 300))
        flags = chance.choice((0, 0, END_STREAM))
        if chance.random() < 0.2:
            content, flags = bytes([chance.choice((0, 2, 200))]) + content + bytes(2), flags | PADDED
        return [frame(DATA, flags, self.stream(), content)]

    def reset(self) -> list[bytes]:
        code = _u32(self._chance.choice(_CODES))
        return [frame(RST_STREAM, 0, self.stream(), code[: self._chance.choice((4, 4, 4, 3))])]

    def window(self) -> list[bytes]:
        by = self._chance.choice((0, 1, 1000, 1000, _MOST))
        return [frame(WINDOW_UPDATE, 0, self._chance.choice((0, self.stream())), _u32(by))]

    def of_connection(self) -> list[bytes]:
        chance = self._chance
        entry = chance.choice(_ENTRIES)
        return [
            chance.choice(
                (
                    settings(entry),
                    settings(entry),
                    frame(SETTINGS, ACK),
                    frame(SETTINGS, payload=bytes(5)),
                    frame(PING, payload=bytes(8)),
                    frame(PING, ACK, payload=bytes(8)),
                    frame(PING, payload=bytes(7)),
                    frame(GOAWAY, payload=_u32(0) + _u32(chance.choice(_CODES)) + b"why"),
                )
            )
        ]

    def odd(self) -> list[bytes]:
        chance = self._chance
        kind = chance.choice((PRIORITY, PRIORITY, PUSH_PROMISE, CONTINUATION, 11, 99))
        payload = bytes(chance.choice((4, 5, 5, 9)))
        return [frame(kind, chance.choice((0, 4, 0xFF)), self.stream(), payload)]


@dataclass(frozen=True)
class Difference:
    """A difference between the two implementations.

    Attributes:
        before: the frames sent before.
        sent: the frame.
        own, other: its meaning to the data plane, and to h2.
    """

    before: Sequence[bytes]
    sent: bytes
    own: Meaning
    other: Meaning

    @property
    def kind(self) -> int:
        return self.sent[3]

    @property
    def stream(self) -> int:
        return int.from_bytes(self.sent[5:9]) & 0x7FFFFFFF

    @property
    def is_head(self) -> bool:
        return self.kind in (HEADERS, CONTINUATION)

    @property
    def is_before_another(self) -> bool:
        """Returns whether a later stream was opened first."""
        return any(self.sent[5:9] < each[5:9] for each in self.before if each[3] == HEADERS)

    def heads(self) -> list[bytes]:
        """Returns the header frames of this stream, in the parts in which they were sent."""
        of_stream = [each for each in (*self.before, self.sent) if each[5:9] == self.sent[5:9]]
        return [each for each in of_stream if each[3] in (HEADERS, CONTINUATION)]

    def depends_on_itself(self) -> bool:
        first = next(each for each in reversed(self.heads()) if each[3] == HEADERS)
        return bool(first[4] & PRIORITIZED) and first[5:9] == first[9:13]


def fails(meaning: Meaning, what: str, code: int | None = None) -> bool:
    return bool(meaning) and meaning[-1][0] == what and code in (None, meaning[-1][2])


def reason(it: Difference) -> str:
    """Returns why the two may differ, or an empty string if they may not. Sections are those of RFC 9113."""
    plane_ends, h2_ends = fails(it.own, "connection-error"), fails(it.other, "connection-error")
    increment = int.from_bytes(it.sent[9:13]) if it.kind == WINDOW_UPDATE else 1
    if any(each[3] == GOAWAY for each in it.before) and h2_ends:
        return "h2 takes a client's GOAWAY for the end; section 6.8 lets streams under way go on"
    if it.before == [PREFACE] and plane_ends:
        return "h2 does not ask for SETTINGS first (section 3.4)"
    if plane_ends and h2_ends:
        return "h2 ends the connection with another code"
    if fails(it.own, "stream-error") and h2_ends:
        return "h2 ends the connection for an error of a stream (sections 5.4.2, 6.3, 6.9 and 8.1.1)"
    if it.is_head and h2_ends and it.depends_on_itself():
        return "h2 refuses a stream that depends on itself, as RFC 7540 did; in section 5.3.2 priorities mean nothing"
    if it.is_head and h2_ends and b":authority" not in b"".join(each[9:] for each in it.heads()):
        return "h2 asks for :authority or Host, and section 8.3.1 does not"
    if it.is_head and fails(it.own, "stream-error", PROTOCOL_ERROR) and fails(it.other, "end"):
        return "h2 compares content-length with DATA, and not at a stream's end without any (section 8.1.1)"
    if it.own == [] and fails(it.other, "stream-error", STREAM_CLOSED):
        return "h2 answers every frame of a stream that it has answered so (section 5.1 lets them be passed over)"
    if it.own == [] and increment == 0:
        return "h2 takes a window that grows by nothing for an error on a closed stream too (section 5.1)"
    if it.kind == RST_STREAM and plane_ends and it.other == []:
        return "h2 passes over RST_STREAM of an idle stream (section 6.4)"
    if it.kind == CONTINUATION and plane_ends and fails(it.other, "stream-error", STREAM_CLOSED):
        return "h2 sees the closed stream before the missing HEADERS (section 6.10)"
    if increment > _MOST and it.own == [] and h2_ends:
        return "h2 looks at the bit that section 6.9 reserves"
    if it.is_head and it.own == [] and h2_ends and it.is_before_another:
        return "h2 ends the connection for headers of a stream that both have refused (section 5.1.1)"
    if it.is_head and fails(it.own, "stream-error", PROTOCOL_ERROR) and b">path" in it.sent:
        return "h2 takes names that are no tokens (RFC 9110, section 5.1)"
    if not it.sent[4] & END_HEADERS and plane_ends and it.other == []:
        return "the data plane refuses a block by its first frame, and h2 by its last"
    return ""


REASONS = 15


def test_generated_and_damaged_connections_are_interpreted_like_by_h2(program: Path) -> None:
    chance = random.Random(SEED)
    connections = [Client(chance).pieces() for _ in range(CONNECTIONS)]
    seen, wrong = Counter[str](), []
    for pieces, own in zip(connections, interpret_with_plane(program, connections), strict=True):
        other = interpret_with_h2(pieces)
        at = next((at for at, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None)
        named = "alike" if at is None else reason(Difference(pieces[:at], pieces[at], own[at], other[at]))
        seen[named] += 1
        if not named:
            wrong.append((pieces, own, other))
    assert not wrong, wrong[:3]
    assert len(seen) == 1 + REASONS
    assert seen["alike"] > CONNECTIONS // 2
