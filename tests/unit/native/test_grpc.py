"""Tests calls of real clients, and hand-made messages that no client would send."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    NO_ERROR,
    RST_STREAM,
    WINDOW_UPDATE,
    Frame,
    Peer,
    frame,
    head,
    literal,
    message,
)
from tests.support.native import echo_server
from tests.support.waiting import GIVE_UP_S, eventually

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_TENSOR = bytes(range(256)) * 588  # about 150 KB, like a picture of 224 x 224
_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture
def channel(port: int) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{port}", _UNLIMITED + _OWN_CONNECTION) as channel:
        yield channel


@pytest.fixture
def peer(port: int) -> Iterator[Peer]:
    with Peer(port) as peer:
        yield peer


def _call(channel: grpc.Channel, method: str, content: bytes = b"", **more: Any) -> bytes:
    answer: bytes = channel.unary_unary(f"/echo.Echo/{method}")(content, timeout=GIVE_UP_S, **more)
    return answer


def _error(channel: grpc.Channel, method: str, content: bytes = b"", **more: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        _call(channel, method, content, **more)
    return caught.value


@pytest.mark.parametrize("size", [0, 1, 1000, 65_530, 65_536, len(_TENSOR), 8 << 20])
def test_a_message_is_echoed(channel: grpc.Channel, size: int) -> None:
    content = (_TENSOR * (size // len(_TENSOR) + 1))[:size]
    assert _call(channel, "Unary", content) == content


def test_a_message_is_echoed_in_small_pieces(slow_port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{slow_port}") as channel:
        assert [_call(channel, "Unary", _TENSOR[:size]) for size in (0, 7, 40_000)] == [
            b"",
            _TENSOR[:7],
            _TENSOR[:40_000],
        ]


def test_many_calls_at_once(channel: grpc.Channel) -> None:
    contents = [_TENSOR[: index * 499] for index in range(300)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda content: _call(channel, "Unary", content), contents)) == contents


def test_calls_beyond_the_concurrent_streams_wait(echo_program: Path) -> None:
    async def calls(port: int) -> list[bytes]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            unary = channel.unary_unary("/echo.Echo/Unary")
            return list(await asyncio.gather(*(unary(b"%d" % index, timeout=GIVE_UP_S) for index in range(100))))

    with echo_server(echo_program, streams=3) as port:
        assert asyncio.run(calls(port)) == [b"%d" % index for index in range(100)]


def test_a_stream_in_both_directions(channel: grpc.Channel) -> None:
    sizes = [0, 1, 100_000, 5, 3 << 20, 2]
    answers = channel.stream_stream("/echo.Echo/Stream")(iter(bytes(size) for size in sizes), timeout=GIVE_UP_S)
    assert [len(answer) for answer in answers] == sizes


def test_a_stream_responds_while_requests_arrive(port: int) -> None:
    async def talk() -> list[bytes]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream("/echo.Echo/Stream")(timeout=GIVE_UP_S)
            answers = []
            for index in range(50):
                await call.write(b"%d" % index)
                answers.append(await call.read())
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
            assert await call.code() == grpc.StatusCode.OK
            return answers

    assert asyncio.run(talk()) == [b"%d" % index for index in range(50)]


def test_a_service_streams_as_fast_as_it_is_read(channel: grpc.Channel) -> None:
    answers = channel.unary_stream("/echo.Echo/Many")(b"200 100000", timeout=GIVE_UP_S)
    assert sum(len(answer) for answer in answers) == 20_000_000


@pytest.mark.parametrize("text", ["", "plain", "100 % of ü, 日本 and \n"])
@pytest.mark.parametrize("status", [3, 8, 14])
def test_a_status_and_its_message_arrive(channel: grpc.Channel, status: int, text: str) -> None:
    error = _error(channel, "Fail", metadata=[("x-status", str(status)), ("x-message-hex", text.encode().hex())])
    assert (error.code().value[0], error.details()) == (status, text)


def test_metadata_is_returned(channel: grpc.Channel) -> None:
    answer, call = channel.unary_unary("/echo.Echo/Metadata").with_call(
        b"", timeout=GIVE_UP_S, metadata=[("x-echo", "a b;c")]
    )
    assert dict(call.initial_metadata())["x-echo"] == dict(call.trailing_metadata())["x-echo"] == "a b;c"
    assert answer.startswith(b"127.0.0.1:")


def test_a_call_ends_at_its_deadline(port: int) -> None:
    """Tests the server's deadline: a client that knew the deadline would not have waited for the response."""
    with Peer(port) as peer:
        began = time.monotonic()
        peer.headers(1, head("Hang", grpc_timeout="150m"), END_HEADERS | END_STREAM)
        assert _status(peer.expect(HEADERS, 1, END_STREAM)) == 4
        assert 0.15 <= time.monotonic() - began < GIVE_UP_S


@pytest.mark.parametrize("timeout", ["", "5", "S", "123456789S", "5s", "-5S", "0x5S"])
def test_an_invalid_timeout_is_an_invalid_argument(peer: Peer, timeout: str) -> None:
    peer.headers(1, head("Hang", grpc_timeout=timeout), END_HEADERS | END_STREAM)
    assert _status(peer.expect(HEADERS, 1, END_STREAM)) == 3


@pytest.mark.parametrize("timeout", ["99999999H", "99999999n", "1M", "20S"])
def test_a_timeout_of_any_unit_is_accepted(peer: Peer, timeout: str) -> None:
    peer.headers(1, head("Early", grpc_timeout=timeout))
    assert _status(peer.expect(HEADERS, 1, END_STREAM)) in (0, 4)


def test_a_canceled_call_is_canceled_on_the_server(echo_program: Path) -> None:
    with echo_server(echo_program) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        hanging = channel.unary_unary("/echo.Echo/Hang").future(b"", timeout=GIVE_UP_S)
        assert _call(channel, "Cancelled") == b"0"
        hanging.cancel()
        eventually(lambda: _call(channel, "Cancelled") == b"1")


def test_a_message_beyond_the_limit_is_refused_before_it_is_read(echo_program: Path) -> None:
    with echo_server(echo_program, max_message=100_000) as port:
        with grpc.insecure_channel(f"127.0.0.1:{port}", _UNLIMITED) as channel:
            assert len(_call(channel, "Unary", bytes(100_000))) == 100_000
            error = _error(channel, "Unary", bytes(5 << 20))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert error.details() == "a message of 5242880 bytes exceeds the limit of 100000 bytes"
        with Peer(port) as peer:  # the length of the message alone is sufficient
            peer.headers(1, head())
            peer.send(frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"))
            assert _status(peer.expect(HEADERS, 1, END_STREAM)) == 8
            assert peer.expect(RST_STREAM, 1).error == NO_ERROR


def test_a_message_without_memory_is_refused(echo_program: Path) -> None:
    with echo_server(echo_program, refused_size=777) as port, grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert _error(channel, "Unary", bytes(777)).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert _call(channel, "Unary", bytes(778)) == bytes(778)


def test_a_compressed_message_is_unimplemented(channel: grpc.Channel) -> None:
    error = _error(channel, "Unary", bytes(10_000), compression=grpc.Compression.Gzip)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_call_answered_early_is_asked_to_stop(peer: Peer) -> None:
    peer.headers(1, head("Early"))
    assert _status(peer.expect(HEADERS, 1, END_STREAM)) == 0
    assert peer.expect(RST_STREAM, 1).error == NO_ERROR
    peer.send(frame(DATA, END_STREAM, 1, message(b"on its way")))
    assert peer.is_alive()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"\x01\0\0\0\x01x", 13, id="compressed by nothing"),
        pytest.param(b"\x02\0\0\0\x01x", 13, id="an unknown flag"),
        pytest.param(b"\0\0\0\0", 13, id="half a prefix"),
        pytest.param(b"\0\0\0\0\x05xxxx", 13, id="half a message"),
        pytest.param(message(b"a") + message(b"b")[:-1], 13, id="a message and a half"),
    ],
)
@pytest.mark.parametrize("step", [100, 1], ids=["whole", "in bits"])
def test_broken_messages_end_their_call(peer: Peer, sent: bytes, status: int, step: int) -> None:
    peer.headers(1, head())
    for at in range(0, len(sent), step):
        peer.send(frame(DATA, 0, 1, sent[at : at + step]))
    peer.send(frame(DATA, END_STREAM, 1))
    assert _status(peer.expect(HEADERS, 1, END_STREAM)) == status
    assert peer.is_alive()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (head(**{":method": "GET"}), "405"),
        (head(content_type="application/json"), "415"),
        (head(content_type="application/grpcx"), "415"),
        (head(without="content-type"), "415"),
    ],
)
def test_requests_other_than_grpc_get_http_responses(peer: Peer, fields: list[tuple[str, str]], status: str) -> None:
    peer.headers(1, fields)
    payload = peer.expect(HEADERS, 1, END_STREAM).payload
    assert payload == b"\x08" + literal("", status)[2:]  # ":status", which is in the static table, and no other field


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;charset=utf-8"])
def test_other_content_types_of_grpc_are_accepted(peer: Peer, content_type: str) -> None:
    peer.headers(1, head(content_type=content_type))
    peer.send(frame(DATA, END_STREAM, 1, message(b"hello")))
    assert peer.expect(DATA, 1).payload == message(b"hello")


def test_a_paused_call_blocks_its_client(echo_program: Path) -> None:
    with echo_server(echo_program, stream_window=65_536) as port, Peer(port) as peer:
        peer.headers(1, head("Paused"))
        peer.send(frame(DATA, 0, 1, message(bytes(60_000))))
        assert _windows(peer.read_responses(), 1) == []
        peer.call(3, "Resume")
        assert _windows(peer.read_responses(), 1) == [60_005]


def test_unread_responses_stop_further_requests(echo_program: Path) -> None:
    """A stream gets no more flow control window until its responses are read."""
    with echo_server(echo_program, unsent=100_000) as port, Peer(port) as peer:
        peer.headers(1, head("Stream"))
        for _ in range(6):
            peer.send(frame(DATA, 0, 1, message(bytes(99_995))))
        assert _windows(peer.read_responses(), 1) == []
        peer.send(b"".join(frame(WINDOW_UPDATE, 0, stream, (10**6).to_bytes(4)) for stream in (0, 1)))
        assert _windows(peer.read_responses(), 1) == [600_000]


def test_threads_and_channels_do_not_disturb_each_other(port: int) -> None:
    failures: list[object] = []

    def client(seed: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}", _OWN_CONNECTION) as channel:
            for index in range(40):
                content = bytes([seed]) * (seed * 1000 + index * 333)
                if _call(channel, "Unary", content) != content:
                    failures.append((seed, index))

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def _windows(received: list[Frame], stream: int) -> list[int]:
    """Returns the increments in the WINDOW_UPDATE frames of a stream."""
    return [int.from_bytes(one.payload) for one in received if (one.type, one.stream) == (WINDOW_UPDATE, stream)]


def _status(trailers: Frame) -> int:
    """Returns `grpc-status` of a block that the server's encoder wrote."""
    name = literal("grpc-status", "")[:-1]
    _, _, rest = trailers.payload.partition(name)
    return int(rest[1 : 1 + rest[0]])
