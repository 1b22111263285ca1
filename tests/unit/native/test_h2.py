"""Frames made by hand, right and wrong, and what RFC 9113 says of them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    HEADER_TABLE_SIZE,
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
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Frame,
    Peer,
    block,
    frame,
    head,
    literal,
    message,
    settings,
)
from tests.support.native import echo_server
from tests.support.waiting import GIVE_UP_S

_HEAD = block(head())
_OPEN = frame(HEADERS, END_HEADERS, 1, _HEAD)  # stream 1, which may send
_WHOLE = frame(HEADERS, END_HEADERS | END_STREAM, 1, _HEAD)  # stream 1, which may not, and is answered
_HANG = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(head("Hang")))  # and is not
_RESET = frame(RST_STREAM, 0, 1, bytes(4))
_MOST = (2**31 - 1).to_bytes(4)
_WINDOW = 1 << 20  # of a stream, as the server announces


@pytest.fixture
def peer(port: int) -> Iterator[Peer]:
    with Peer(port) as peer:
        yield peer


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        # section 4.1 and 4.2
        pytest.param(frame(DATA, 0, 1, bytes(_WINDOW + 1)), FRAME_SIZE_ERROR, id="a frame beyond MAX_FRAME_SIZE"),
        pytest.param(frame(SETTINGS, payload=bytes(5)), FRAME_SIZE_ERROR, id="SETTINGS of 5 bytes"),
        pytest.param(frame(SETTINGS, ACK, payload=bytes(6)), FRAME_SIZE_ERROR, id="SETTINGS acknowledged with entries"),
        pytest.param(frame(PING, payload=bytes(7)), FRAME_SIZE_ERROR, id="PING of 7 bytes"),
        pytest.param(frame(GOAWAY, payload=bytes(7)), FRAME_SIZE_ERROR, id="GOAWAY of 7 bytes"),
        pytest.param(frame(WINDOW_UPDATE, payload=bytes(3)), FRAME_SIZE_ERROR, id="WINDOW_UPDATE of 3 bytes"),
        pytest.param(_OPEN + frame(RST_STREAM, 0, 1, bytes(5)), FRAME_SIZE_ERROR, id="RST_STREAM of 5 bytes"),
        pytest.param(frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR, id="PRIORITY of 4 bytes, no stream"),
        # section 4.3
        pytest.param(frame(HEADERS, END_HEADERS, 1, b"\x80"), COMPRESSION_ERROR, id="headers that do not decode"),
        # section 5.1
        pytest.param(frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR, id="DATA of an idle stream"),
        pytest.param(_OPEN + frame(DATA, 0, 2, b"x"), PROTOCOL_ERROR, id="DATA of a stream of the server's"),
        pytest.param(_RESET, PROTOCOL_ERROR, id="RST_STREAM of an idle stream"),
        pytest.param(
            frame(HEADERS, END_HEADERS, 3, _HEAD) + frame(RST_STREAM, 0, 2, bytes(4)),
            PROTOCOL_ERROR,
            id="RST_STREAM of a stream of the server's",
        ),
        pytest.param(frame(WINDOW_UPDATE, 0, 1, _u32(1)), PROTOCOL_ERROR, id="WINDOW_UPDATE of an idle stream"),
        pytest.param(
            frame(HEADERS, END_HEADERS, 3, _HEAD) + frame(WINDOW_UPDATE, 0, 2, _u32(1)),
            PROTOCOL_ERROR,
            id="WINDOW_UPDATE of a stream of the server's",
        ),
        pytest.param(frame(HEADERS, END_HEADERS, 2, _HEAD), PROTOCOL_ERROR, id="a stream of the server's"),
        pytest.param(frame(HEADERS, END_HEADERS, 5, _HEAD) + _OPEN, PROTOCOL_ERROR, id="streams that count down"),
        # section 6: whose frame it is
        pytest.param(frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR, id="DATA of the connection"),
        pytest.param(frame(HEADERS, END_HEADERS, 0, _HEAD), PROTOCOL_ERROR, id="HEADERS of the connection"),
        pytest.param(frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR, id="PRIORITY of the connection"),
        pytest.param(frame(RST_STREAM, 0, 0, bytes(4)), PROTOCOL_ERROR, id="RST_STREAM of the connection"),
        pytest.param(frame(SETTINGS, 0, 1), PROTOCOL_ERROR, id="SETTINGS of a stream"),
        pytest.param(frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR, id="PING of a stream"),
        pytest.param(frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR, id="GOAWAY of a stream"),
        pytest.param(frame(CONTINUATION, END_HEADERS, 0), PROTOCOL_ERROR, id="CONTINUATION of the connection"),
        pytest.param(_OPEN + frame(PUSH_PROMISE, 4, 1, _u32(2)), PROTOCOL_ERROR, id="a client that pushes"),
        # padding
        pytest.param(_OPEN + frame(DATA, PADDED, 1), FRAME_SIZE_ERROR, id="DATA without its padding"),
        pytest.param(_OPEN + frame(DATA, PADDED, 1, b"\x05abcd"), PROTOCOL_ERROR, id="more padding than DATA"),
        pytest.param(
            frame(HEADERS, PADDED | 4, 1, b"\xff" + _HEAD[:200]), PROTOCOL_ERROR, id="more padding than HEADERS"
        ),
        pytest.param(
            frame(HEADERS, PRIORITIZED | 4, 1, b"abcd"), FRAME_SIZE_ERROR, id="HEADERS without their priority"
        ),
        # section 6.5.2
        pytest.param(settings((ENABLE_PUSH, 2)), PROTOCOL_ERROR, id="ENABLE_PUSH 2"),
        pytest.param(settings((INITIAL_WINDOW_SIZE, 2**31)), FLOW_CONTROL_ERROR, id="INITIAL_WINDOW_SIZE 2^31"),
        pytest.param(settings((MAX_FRAME_SIZE, 16383)), PROTOCOL_ERROR, id="MAX_FRAME_SIZE 16,383"),
        pytest.param(settings((MAX_FRAME_SIZE, 2**24)), PROTOCOL_ERROR, id="MAX_FRAME_SIZE 2^24"),
        pytest.param(settings(*[(ENABLE_PUSH, 0)] * 101), ENHANCE_YOUR_CALM, id="SETTINGS without end"),
        # section 6.9
        pytest.param(frame(WINDOW_UPDATE, 0, 0, _u32(0)), PROTOCOL_ERROR, id="a window that grows by nothing"),
        pytest.param(frame(WINDOW_UPDATE, 0, 0, _MOST), FLOW_CONTROL_ERROR, id="a connection window of 2^31"),
        pytest.param(
            _HANG + frame(WINDOW_UPDATE, 0, 1, _u32(2**31 - 65_536)) + settings((INITIAL_WINDOW_SIZE, 65_536)),
            FLOW_CONTROL_ERROR,
            id="SETTINGS that make a window too large",
        ),
        # section 6.10
        pytest.param(frame(CONTINUATION, END_HEADERS, 1), PROTOCOL_ERROR, id="CONTINUATION of nothing"),
        pytest.param(_OPEN + frame(CONTINUATION, END_HEADERS, 1), PROTOCOL_ERROR, id="CONTINUATION behind the end"),
        pytest.param(frame(HEADERS, 0, 1) + frame(PING, payload=bytes(8)), PROTOCOL_ERROR, id="PING within headers"),
        pytest.param(frame(HEADERS, 0, 1) + frame(99), PROTOCOL_ERROR, id="an unknown frame within headers"),
        pytest.param(frame(HEADERS, 0, 1) + frame(CONTINUATION, 4, 3), PROTOCOL_ERROR, id="another's CONTINUATION"),
        pytest.param(
            frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 33, ENHANCE_YOUR_CALM, id="CONTINUATION without end"
        ),
        pytest.param(frame(HEADERS, 0, 1, bytes(34_000)), ENHANCE_YOUR_CALM, id="headers without end"),
        pytest.param(
            frame(HEADERS, 0, 1, bytes(17_000)) + frame(CONTINUATION, 0, 1, bytes(17_000)),
            ENHANCE_YOUR_CALM,
            id="headers without end, in parts",
        ),
    ],
)
@pytest.mark.parametrize("server", ["port", "slow_port"])
def test_an_error_of_the_connection_ends_it(
    request: pytest.FixtureRequest, server: str, sent: bytes, error: int
) -> None:
    with Peer(request.getfixturevalue(server)) as peer:
        peer.send(sent)
        assert peer.lost() == error


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n", id="HTTP/1.1"),
        pytest.param(PREFACE[:-1] + b"x", id="a preface that ends wrong"),
        pytest.param(PREFACE + frame(PING, payload=bytes(8)), id="PING before SETTINGS"),
        pytest.param(PREFACE + frame(SETTINGS, ACK), id="SETTINGS that only acknowledge"),
    ],
)
def test_a_connection_begins_with_the_preface_and_settings(port: int, start: bytes) -> None:
    with Peer(port, greet=False) as peer:
        peer.send(start)
        assert peer.lost() == PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        pytest.param(_HANG + frame(DATA, 0, 1, b"x"), STREAM_CLOSED, id="DATA behind END_STREAM"),
        pytest.param(_HANG + _WHOLE, STREAM_CLOSED, id="HEADERS behind END_STREAM"),
        pytest.param(_OPEN + _RESET + frame(DATA, 0, 1, b"x"), STREAM_CLOSED, id="DATA behind RST_STREAM"),
        pytest.param(_OPEN + _RESET + _WHOLE, STREAM_CLOSED, id="HEADERS behind RST_STREAM"),
        pytest.param(_OPEN + _OPEN, PROTOCOL_ERROR, id="trailers that end nothing"),
        pytest.param(_OPEN + _WHOLE, PROTOCOL_ERROR, id="trailers with pseudo-header fields"),
        pytest.param(_OPEN + frame(WINDOW_UPDATE, 0, 1, _u32(0)), PROTOCOL_ERROR, id="a window that grows by nothing"),
        pytest.param(_OPEN + frame(WINDOW_UPDATE, 0, 1, _MOST), FLOW_CONTROL_ERROR, id="a window of 2^31"),
        pytest.param(_OPEN + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR, id="PRIORITY of 4 bytes"),
    ],
)
def test_an_error_of_a_stream_ends_it_alone(peer: Peer, sent: bytes, error: int) -> None:
    peer.send(sent)
    assert peer.expect(RST_STREAM, 1).error == error
    assert peer.alive()


def test_frames_behind_the_end_of_both_sides_end_the_connection(peer: Peer) -> None:
    peer.call(1)
    peer.expect(HEADERS, 1, END_STREAM)
    peer.send(frame(DATA, 0, 1, b"x"))
    assert peer.lost() == STREAM_CLOSED


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(head(without=":method"), id="no method"),
        pytest.param(head(without=":scheme"), id="no scheme"),
        pytest.param(head(without=":path"), id="no path"),
        pytest.param([(":path", ""), *head(without=":path")], id="an empty path"),
        pytest.param([(":path", "/"), *head()], id="two paths"),
        pytest.param([(":status", "200"), *head()], id="a response's field"),
        pytest.param([*head(), (":method", "POST")], id="a pseudo-header field behind others"),
        pytest.param([(":authority", "a\nb"), *head(without=":authority")], id="a line break"),
        pytest.param(head("Unary", ("Upper", "case")), id="a name in upper case"),
        pytest.param(head("Unary", ("", "nameless")), id="no name"),
        pytest.param(head("Unary", ("a b", "spaced")), id="a name with a space"),
        pytest.param(head("Unary", ("x", "a\0b")), id="a null byte"),
        pytest.param(head("Unary", ("x", " padded")), id="space before a value"),
        pytest.param(head("Unary", ("x", "padded\t")), id="space behind a value"),
        pytest.param(head("Unary", ("connection", "close")), id="connection"),
        pytest.param(head("Unary", ("transfer-encoding", "chunked")), id="transfer-encoding"),
        pytest.param(head("Unary", ("upgrade", "h2c")), id="upgrade"),
        pytest.param(head(te="gzip"), id="te other than trailers"),
        pytest.param(head(content_length="ten"), id="content-length in header"),
        pytest.param(head("Unary", ("content-length", "5"), ("content-length", "6")), id="two content-lengths"),
    ],
)
def test_a_malformed_request_is_a_protocol_error_of_its_stream(peer: Peer, fields: list[tuple[str, str]]) -> None:
    peer.headers(1, fields)
    assert peer.expect(RST_STREAM, 1).error == PROTOCOL_ERROR
    assert peer.alive()


@pytest.mark.parametrize(("length", "content"), [("9", 10), ("11", 10), ("4", 0)])
def test_content_of_another_length_than_announced_is_malformed(peer: Peer, length: str, content: int) -> None:
    peer.headers(1, head(content_length=length), END_HEADERS | (0 if content else END_STREAM))
    if content:
        peer.send(frame(DATA, END_STREAM, 1, message(b"hello")))
    assert peer.expect(RST_STREAM, 1).error == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frame(99, 0xFF, 5, bytes(100)), id="an unknown frame"),
        pytest.param(frame(HEADERS, END_HEADERS, 1, block(head(te="Trailers"))) + _RESET, id="te in upper case"),
        pytest.param(settings((99, 7)), id="an unknown setting"),
        pytest.param(frame(PRIORITY, 0, 7, bytes(5)), id="PRIORITY of an idle stream"),
        pytest.param(frame(GOAWAY, payload=bytes(5000)), id="GOAWAY, which ends nothing of ours"),
        pytest.param(frame(SETTINGS, ACK), id="SETTINGS acknowledged"),
        pytest.param(frame(PING, ACK, payload=bytes(8)), id="the answer to no PING"),
        pytest.param(_OPEN + _RESET + _RESET, id="RST_STREAM twice"),
        pytest.param(_OPEN + _RESET + frame(WINDOW_UPDATE, 0, 1, _u32(1)), id="WINDOW_UPDATE of a closed stream"),
        pytest.param(frame(HEADERS, PADDED | 4, 1, b"\x03" + _HEAD + bytes(3)) + _RESET, id="HEADERS with padding"),
        pytest.param(frame(HEADERS, PRIORITIZED | 4, 1, bytes(5) + _HEAD) + _RESET, id="HEADERS with a priority"),
        pytest.param(
            frame(HEADERS, 0, 1, _HEAD[:7]) + frame(CONTINUATION, 0, 1) + frame(CONTINUATION, 4, 1, _HEAD[7:]) + _RESET,
            id="HEADERS in parts",
        ),
    ],
)
def test_what_is_allowed_is_taken(peer: Peer, sent: bytes) -> None:
    peer.send(sent)
    assert RST_STREAM not in {received.type for received in peer.settled()}
    assert peer.alive()


def test_padding_is_no_content(peer: Peer) -> None:
    peer.headers(1, head())
    content = message(b"hello")
    peer.send(frame(DATA, PADDED, 1, b"\x04" + content[:6] + bytes(4)))
    peer.send(frame(DATA, PADDED | END_STREAM, 1, b"\xff" + content[6:] + bytes(255)))
    assert peer.expect(DATA, 1).payload == content


def test_trailers_of_a_request_end_it(peer: Peer) -> None:
    peer.headers(1, head())
    peer.send(frame(DATA, 0, 1, message(b"hello")))
    peer.headers(1, [("x-checksum", "7")], END_HEADERS | END_STREAM)
    assert peer.expect(DATA, 1).payload == message(b"hello")


def test_settings_and_ping_are_answered(peer: Peer) -> None:
    peer.expect(SETTINGS, 0, ACK)
    peer.send(settings((HEADER_TABLE_SIZE, 100)))
    peer.expect(SETTINGS, 0, ACK)
    peer.send(frame(PING, payload=b"12345678"))
    assert peer.expect(PING, 0, ACK).payload == b"12345678"


def test_an_encoder_without_a_table_says_so_to_a_smaller_one(peer: Peer) -> None:
    """RFC 7541 section 4.2, on which some decoders insist."""
    peer.send(settings((HEADER_TABLE_SIZE, 100)))
    peer.call(1)
    assert peer.expect(HEADERS, 1).payload[0] == 0x20
    peer.call(3)
    assert peer.expect(HEADERS, 3).payload[0] == 0x88  # ":status: 200", and nothing before it: once is enough


def test_streams_beyond_the_limit_are_refused(echo_program: Path) -> None:
    with echo_server(echo_program, streams=2) as port, Peer(port) as peer:
        for stream in (1, 3, 5):
            peer.headers(stream, head("Hang"))
        assert peer.expect(RST_STREAM, 5).error == REFUSED_STREAM
        peer.send(frame(DATA, END_STREAM, 5, b"on its way") + _RESET)
        assert peer.alive()


# Flow control


def _content(received: list[Frame]) -> bytes:
    return b"".join(one.payload for one in received if one.type == DATA)


def test_answers_keep_to_the_windows(peer: Peer) -> None:
    """Of the stream, which SETTINGS may take below zero, and of the connection."""
    content = bytes(range(256)) * 400
    peer.send(settings((INITIAL_WINDOW_SIZE, 10)))
    peer.call(1, content=content)
    received = _content(peer.settled())
    assert len(received) == 10
    peer.send(settings((INITIAL_WINDOW_SIZE, 4)))  # leaves -6
    peer.send(frame(WINDOW_UPDATE, 0, 1, _u32(6)))
    assert _content(peer.settled()) == b""
    peer.send(frame(WINDOW_UPDATE, 0, 1, _u32(1)))
    received += _content(peer.settled())
    assert len(received) == 11
    peer.send(frame(WINDOW_UPDATE, 0, 1, _u32(200_000)))
    received += _content(peer.settled())
    assert len(received) == 65_535  # the connection's
    peer.send(frame(WINDOW_UPDATE, 0, 0, _u32(200_000)))
    assert received + _content(list(_to_the_end(peer, 1))) == message(content)


def _to_the_end(peer: Peer, stream: int) -> Iterator[Frame]:
    for received in peer.frames():
        yield received
        if received.stream == stream and received.flags & END_STREAM and received.type in (DATA, HEADERS):
            return


def test_a_connection_without_window_still_ends_other_calls(peer: Peer) -> None:
    peer.call(1, content=bytes(100_000))
    assert len(_content(peer.settled())) == 65_535
    peer.headers(3, head("Early"), END_HEADERS | END_STREAM)
    peer.expect(HEADERS, 3, END_STREAM)


def test_frames_are_no_longer_than_the_peer_takes(peer: Peer) -> None:
    peer.send(settings((INITIAL_WINDOW_SIZE, 2**31 - 1)) + frame(WINDOW_UPDATE, 0, 0, _u32(10_000_000)))
    peer.call(1, content=bytes(100_000))
    lengths = [len(received.payload) for received in _to_the_end(peer, 1) if received.type == DATA]
    assert lengths == [16_384] * 6 + [100_005 - 6 * 16_384]


def test_a_tensor_waits_for_no_window(peer: Peer) -> None:
    """What is announced at first is enough for requests of a usual size."""
    announced = peer.expect(SETTINGS).payload
    entries = dict(struct.unpack_from(">HI", announced, at) for at in range(0, len(announced), 6))
    assert entries[INITIAL_WINDOW_SIZE] == _WINDOW
    assert peer.expect(WINDOW_UPDATE).payload == _u32((16 << 20) - 65_535)
    peer.call(1, content=bytes(150_000))
    assert [received.type for received in peer.settled() if received.type == WINDOW_UPDATE] == []


def test_more_than_a_streams_window_is_an_error_of_it(echo_program: Path) -> None:
    with echo_server(echo_program, stream_window=65_535) as port, Peer(port) as peer:
        peer.headers(1, head("Paused"))
        peer.send(frame(DATA, 0, 1, message(bytes(65_530))))
        assert RST_STREAM not in {received.type for received in peer.settled()}
        peer.send(frame(DATA, 0, 1, b"x"))
        assert peer.expect(RST_STREAM, 1).error == FLOW_CONTROL_ERROR
        assert peer.alive()


def test_a_window_is_given_back_as_content_is_consumed(peer: Peer) -> None:
    peer.headers(1, head("Stream"))
    peer.send(frame(DATA, 0, 1, message(bytes(_WINDOW // 2))))
    assert peer.expect(WINDOW_UPDATE, 1).payload == _u32(_WINDOW // 2 + 5)


def test_the_window_of_the_connection_is_given_back_for_streams_that_are_gone(peer: Peer) -> None:
    """20 MiB of content that nobody wants, in a window of 16."""
    peer.headers(1, head("Early"))
    peer.expect(RST_STREAM, 1)
    for _ in range(20):
        peer.send(frame(DATA, 0, 1, bytes(_WINDOW)))
    assert peer.alive()


# Hostile clients


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frame(PING, payload=bytes(8)), id="PING"),
        pytest.param(settings(), id="SETTINGS"),
        pytest.param(frame(PRIORITY, 0, 1, bytes(5)), id="PRIORITY"),
        pytest.param(frame(99), id="unknown"),
        pytest.param(frame(DATA, 0, 1), id="empty DATA"),
        pytest.param(frame(SETTINGS, ACK), id="acknowledgements"),
    ],
)
def test_a_flood_of_frames_that_ask_for_nothing_ends_the_connection(echo_program: Path, sent: bytes) -> None:
    with echo_server(echo_program, nuisances=500) as port, Peer(port) as peer:
        peer.send(_OPEN + sent * 400)
        peer.settled()
        peer.send(sent * 100)
        assert peer.lost() == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("flags", [END_HEADERS, END_HEADERS | END_STREAM])
def test_a_rapid_reset_ends_the_connection(echo_program: Path, flags: int) -> None:
    """CVE-2023-44487."""
    pairs = [
        frame(HEADERS, flags, stream, block(head("Hang"))) + frame(RST_STREAM, 0, stream, _u32(8))
        for stream in range(1, 203, 2)
    ]
    with echo_server(echo_program, resets=100) as port, Peer(port) as peer:
        peer.send(b"".join(pairs[:100]))
        peer.settled()
        peer.send(pairs[100])
        assert peer.lost() == ENHANCE_YOUR_CALM


def test_a_client_that_makes_the_server_reset_is_counted_too(echo_program: Path) -> None:
    """CVE-2025-8671."""
    errors = [
        frame(HEADERS, END_HEADERS, stream, block(head("Hang"))) + frame(WINDOW_UPDATE, 0, stream, _u32(0))
        for stream in range(1, 203, 2)
    ]
    with echo_server(echo_program, resets=100) as port, Peer(port) as peer:
        peer.send(b"".join(errors))
        assert peer.lost() == ENHANCE_YOUR_CALM


def test_a_client_that_asks_and_does_not_read_is_hung_up_on(echo_program: Path) -> None:
    """CVE-2019-9512. Its answers fill the socket, then a bounded queue; then it hears no more."""
    with echo_server(echo_program, nuisances=10**9) as port, Peer(port) as peer:
        peer.socket.settimeout(GIVE_UP_S)
        assert not _takes(peer, frame(PING, payload=bytes(8)) * 10_000, times=2000)


def _takes(peer: Peer, sent: bytes, times: int) -> bool:
    try:
        for _ in range(times):
            peer.socket.sendall(sent)
    except ConnectionError:
        return False
    return True


def test_a_header_list_beyond_the_limit_is_refused(peer: Peer) -> None:
    """An entry of 4,000 bytes in the table, named 100 times in as many bytes; what follows decodes still."""
    peer.send(frame(HEADERS, 4 | END_STREAM, 1, _HEAD + literal("a", "b" * 3900, 0x40) + b"\xbe" * 100))
    assert peer.expect(HEADERS, 1, END_STREAM).payload == literal("", "431").replace(b"\0\0", b"\x08", 1)
    peer.send(frame(HEADERS, 4 | END_STREAM, 3, _HEAD + b"\xbe"))
    assert peer.expect(HEADERS, 3).payload[0] == 0x88


# The end


def test_a_drained_connection_serves_what_was_opened_before_the_client_knew(peer: Peer) -> None:
    peer.headers(1, head("Stream"))
    peer.headers(3, head("Drain"), END_HEADERS | END_STREAM)
    first = next(received for received in peer.frames() if received.type == GOAWAY)
    assert (first.payload[:4], first.error) == (_MOST, NO_ERROR)
    probe = next(received for received in peer.frames() if received.type == PING)
    peer.headers(5, head("Stream"))  # crossed the GOAWAY
    peer.send(frame(PING, ACK, payload=probe.payload))
    second = next(received for received in peer.frames() if received.type == GOAWAY)
    assert (second.payload[:4], second.error) == (_u32(5), NO_ERROR)
    peer.headers(7, head("Stream"))  # did not
    for stream in (1, 5):
        peer.send(frame(DATA, END_STREAM, stream, message(b"last header")))
    ends = {received.stream: received.payload for received in peer.frames() if received.type == DATA}  # hangs up
    assert ends == {1: message(b"last header"), 5: message(b"last header")}


def test_a_client_that_goes_away_cancels_its_calls(echo_program: Path) -> None:
    with echo_server(echo_program) as port:
        with Peer(port) as peer:
            peer.send(_HANG)
            peer.settled()
        deadline = time.monotonic() + GIVE_UP_S
        cancelled = b""
        while cancelled != message(b"1") and time.monotonic() < deadline:
            with Peer(port) as other:
                other.call(1, "Cancelled")
                cancelled = other.expect(DATA, 1).payload
        assert cancelled == message(b"1")
