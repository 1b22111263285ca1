"""Tests hand-made frames, valid and invalid, against the requirements of RFC 9113."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http2_cases import WINDOW, Case, Ends, cases, prefaces
from tests.support.http2_frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PRIORITY,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Frame,
    Peer,
    block,
    echo,
    frame,
    head,
    literal,
    message,
    settings,
)
from tests.support.native import echo_server
from tests.support.waiting import GIVE_UP_S

_HANG = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(head("Hang")))  # is never answered
CASES = {ends: [case for case in cases(echo(), _HANG) if case.ends is ends] for ends in Ends}

_HEAD = block(head())
_OPEN = frame(HEADERS, END_HEADERS, 1, _HEAD)  # Stream 1, open for more data.
_WHOLE = frame(HEADERS, END_HEADERS | END_STREAM, 1, _HEAD)  # Stream 1, complete, which is answered.
_RESET = frame(RST_STREAM, 0, 1, bytes(4))
_MOST = (2**31 - 1).to_bytes(4)


@pytest.fixture
def peer(port: int) -> Iterator[Peer]:
    with Peer(port) as peer:
        yield peer


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


@pytest.mark.parametrize("case", CASES[Ends.CONNECTION], ids=str)
@pytest.mark.parametrize("server", ["port", "slow_port"])
def test_an_error_of_the_connection_ends_it(request: pytest.FixtureRequest, server: str, case: Case) -> None:
    with Peer(request.getfixturevalue(server)) as peer:
        peer.send(case.sent)
        assert peer.closing_error() == case.error


@pytest.mark.parametrize("case", prefaces(), ids=str)
def test_a_connection_begins_with_the_preface_and_settings(port: int, case: Case) -> None:
    with Peer(port, greet=False) as peer:
        peer.send(case.sent)
        assert peer.closing_error() == case.error


@pytest.mark.parametrize("case", CASES[Ends.STREAM], ids=str)
def test_an_error_of_a_stream_ends_it_alone(peer: Peer, case: Case) -> None:
    peer.send(case.sent)
    assert peer.expect(RST_STREAM, 1).error == case.error
    assert peer.is_alive()


def test_frames_after_the_end_of_both_sides_end_the_connection(peer: Peer) -> None:
    peer.call(1)
    peer.expect(HEADERS, 1, END_STREAM)
    peer.send(frame(DATA, 0, 1, b"x"))
    assert peer.closing_error() == STREAM_CLOSED


@pytest.mark.parametrize("case", CASES[Ends.NOTHING], ids=str)
def test_permitted_frames_are_accepted(peer: Peer, case: Case) -> None:
    peer.send(case.sent)
    assert RST_STREAM not in {received.type for received in peer.read_responses()}
    assert peer.is_alive()


def test_padding_is_not_content(peer: Peer) -> None:
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


def test_an_encoder_without_a_table_signals_a_smaller_table(peer: Peer) -> None:
    """RFC 7541 section 4.2, which some decoders enforce."""
    peer.send(settings((HEADER_TABLE_SIZE, 100)))
    peer.call(1)
    assert peer.expect(HEADERS, 1).payload[0] == 0x20
    peer.call(3)
    assert peer.expect(HEADERS, 3).payload[0] == 0x88  # ":status: 200" without a size update: one is enough


def test_streams_beyond_the_limit_are_refused(echo_program: Path) -> None:
    with echo_server(echo_program, streams=2) as port, Peer(port) as peer:
        for stream in (1, 3, 5):
            peer.headers(stream, head("Hang"))
        assert peer.expect(RST_STREAM, 5).error == REFUSED_STREAM
        peer.send(frame(DATA, END_STREAM, 5, b"on its way") + _RESET)
        assert peer.is_alive()


# Flow control


def _content(received: list[Frame]) -> bytes:
    return b"".join(one.payload for one in received if one.type == DATA)


def test_responses_respect_the_windows(peer: Peer) -> None:
    """Tests the stream's window, which SETTINGS may make negative, and the connection's."""
    content = bytes(range(256)) * 400
    peer.send(settings((INITIAL_WINDOW_SIZE, 10)))
    peer.call(1, content=content)
    received = _content(peer.read_responses())
    assert len(received) == 10
    peer.send(settings((INITIAL_WINDOW_SIZE, 4)))  # leaves -6
    peer.send(frame(WINDOW_UPDATE, 0, 1, _u32(6)))
    assert _content(peer.read_responses()) == b""
    peer.send(frame(WINDOW_UPDATE, 0, 1, _u32(1)))
    received += _content(peer.read_responses())
    assert len(received) == 11
    peer.send(frame(WINDOW_UPDATE, 0, 1, _u32(200_000)))
    received += _content(peer.read_responses())
    assert len(received) == 65_535  # the connection's window
    peer.send(frame(WINDOW_UPDATE, 0, 0, _u32(200_000)))
    assert received + _content(list(_to_the_end(peer, 1))) == message(content)


def _to_the_end(peer: Peer, stream: int) -> Iterator[Frame]:
    for received in peer.frames():
        yield received
        if received.stream == stream and received.flags & END_STREAM and received.type in (DATA, HEADERS):
            return


def test_a_connection_without_window_still_ends_other_calls(peer: Peer) -> None:
    peer.call(1, content=bytes(100_000))
    assert len(_content(peer.read_responses())) == 65_535
    peer.headers(3, head("Early"), END_HEADERS | END_STREAM)
    peer.expect(HEADERS, 3, END_STREAM)


def test_frames_are_not_longer_than_the_peer_accepts(peer: Peer) -> None:
    peer.send(settings((INITIAL_WINDOW_SIZE, 2**31 - 1)) + frame(WINDOW_UPDATE, 0, 0, _u32(10_000_000)))
    peer.call(1, content=bytes(100_000))
    lengths = [len(received.payload) for received in _to_the_end(peer, 1) if received.type == DATA]
    assert lengths == [16_384] * 6 + [100_005 - 6 * 16_384]


def test_a_tensor_fits_the_initial_window(peer: Peer) -> None:
    """The initial window is large enough for requests of a usual size."""
    announced = peer.expect(SETTINGS).payload
    entries = dict(struct.unpack_from(">HI", announced, at) for at in range(0, len(announced), 6))
    assert entries[INITIAL_WINDOW_SIZE] == WINDOW
    assert peer.expect(WINDOW_UPDATE).payload == _u32((16 << 20) - 65_535)
    peer.call(1, content=bytes(150_000))
    assert [received.type for received in peer.read_responses() if received.type == WINDOW_UPDATE] == []


def test_exceeding_a_streams_window_is_a_stream_error(echo_program: Path) -> None:
    with echo_server(echo_program, stream_window=65_535) as port, Peer(port) as peer:
        peer.headers(1, head("Paused"))
        peer.send(frame(DATA, 0, 1, message(bytes(65_530))))
        assert RST_STREAM not in {received.type for received in peer.read_responses()}
        peer.send(frame(DATA, 0, 1, b"x"))
        assert peer.expect(RST_STREAM, 1).error == FLOW_CONTROL_ERROR
        assert peer.is_alive()


def test_a_window_is_given_back_as_content_is_consumed(peer: Peer) -> None:
    peer.headers(1, head("Stream"))
    peer.send(frame(DATA, 0, 1, message(bytes(WINDOW // 2))))
    assert peer.expect(WINDOW_UPDATE, 1).payload == _u32(WINDOW // 2 + 5)


def test_the_window_of_the_connection_is_given_back_for_streams_that_are_gone(peer: Peer) -> None:
    """Sends 20 MiB of unwanted content through a window of 16 MiB."""
    peer.headers(1, head("Early"))
    peer.expect(RST_STREAM, 1)
    for _ in range(20):
        peer.send(frame(DATA, 0, 1, bytes(WINDOW)))
    assert peer.is_alive()


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
def test_a_flood_of_useless_frames_ends_the_connection(echo_program: Path, sent: bytes) -> None:
    with echo_server(echo_program, nuisances=500) as port, Peer(port) as peer:
        peer.send(_OPEN + sent * 400)
        peer.read_responses()
        peer.send(sent * 100)
        assert peer.closing_error() == ENHANCE_YOUR_CALM


@pytest.mark.parametrize("flags", [END_HEADERS, END_HEADERS | END_STREAM])
def test_a_rapid_reset_ends_the_connection(echo_program: Path, flags: int) -> None:
    """CVE-2023-44487."""
    pairs = [
        frame(HEADERS, flags, stream, block(head("Hang"))) + frame(RST_STREAM, 0, stream, _u32(8))
        for stream in range(1, 203, 2)
    ]
    with echo_server(echo_program, resets=100) as port, Peer(port) as peer:
        peer.send(b"".join(pairs[:100]))
        peer.read_responses()
        peer.send(pairs[100])
        assert peer.closing_error() == ENHANCE_YOUR_CALM


def test_a_client_that_makes_the_server_reset_is_counted_too(echo_program: Path) -> None:
    """CVE-2025-8671."""
    errors = [
        frame(HEADERS, END_HEADERS, stream, block(head("Hang"))) + frame(WINDOW_UPDATE, 0, stream, _u32(0))
        for stream in range(1, 203, 2)
    ]
    with echo_server(echo_program, resets=100) as port, Peer(port) as peer:
        peer.send(b"".join(errors))
        assert peer.closing_error() == ENHANCE_YOUR_CALM


def test_a_client_that_does_not_read_replies_is_disconnected(echo_program: Path) -> None:
    """CVE-2019-9512. The replies to the client fill the socket and then a bounded queue; then the server
    disconnects."""
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
    """The header block contains 100 references of one byte to a table entry of 4,000 bytes. The next block still
    decodes."""
    peer.send(frame(HEADERS, 4 | END_STREAM, 1, _HEAD + literal("a", "b" * 3900, 0x40) + b"\xbe" * 100))
    assert peer.expect(HEADERS, 1, END_STREAM).payload == literal("", "431").replace(b"\0\0", b"\x08", 1)
    peer.send(frame(HEADERS, 4 | END_STREAM, 3, _HEAD + b"\xbe"))
    assert peer.expect(HEADERS, 3).payload[0] == 0x88


# The end of a connection


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
    # The server disconnects.
    ends = {received.stream: received.payload for received in peer.frames() if received.type == DATA}
    assert ends == {1: message(b"last header"), 5: message(b"last header")}


def test_a_client_that_goes_away_cancels_its_calls(echo_program: Path) -> None:
    with echo_server(echo_program) as port:
        with Peer(port) as peer:
            peer.send(_HANG)
            peer.read_responses()
        deadline = time.monotonic() + GIVE_UP_S
        cancelled = b""
        while cancelled != message(b"1") and time.monotonic() < deadline:
            with Peer(port) as other:
                other.call(1, "Cancelled")
                cancelled = other.expect(DATA, 1).payload
        assert cancelled == message(b"1")
