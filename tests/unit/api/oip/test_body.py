"""Reading a body: bounded by what arrives, not only by what was declared, and copied once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from service.api.oip.body import Body, Head, read_body
from service.core.errors import TooLarge

pytestmark = pytest.mark.anyio


def receive_from(messages: Sequence[Message]) -> tuple[Receive, list[Message]]:
    """A `receive` that gives `messages`, and the list of those that it still has."""
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive, left


def arriving(*chunks: bytes) -> list[Message]:
    return [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]


async def test_a_declared_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    receive, left = receive_from(arriving(b"x" * 11))
    with pytest.raises(TooLarge):
        await read_body(receive, Head(content_bytes=11), 10)
    assert len(left) == 1


async def test_a_body_without_a_length_is_refused_when_it_grows_over_the_limit() -> None:
    receive, left = receive_from(arriving(b"x" * 6, b"x" * 6, b"x" * 6))
    with pytest.raises(TooLarge):
        await read_body(receive, Head(), 10)
    assert len(left) == 1


async def test_a_body_of_just_the_limit_is_read() -> None:
    receive, _ = receive_from(arriving(b"abcde", b"", b"fghij"))
    body = await read_body(receive, Head(content_bytes=10), 10)
    assert bytes(body.take(10)) == b"abcdefghij"


async def test_a_client_that_leaves_ends_the_request() -> None:
    receive, _ = receive_from([{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}])
    with pytest.raises(ClientDisconnect):
        await read_body(receive, Head(), 10)


def chunked(size: int) -> Body:
    data = bytes(range(100))
    return Body([data[start : start + size] for start in range(0, 100, size)])


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_bytes_come_in_order_whatever_the_chunks(size: int) -> None:
    body = chunked(size)
    assert body.peek(8) == bytes(range(8))
    assert body.take(10) == bytes(range(10))
    array = np.zeros(80, np.uint8)
    body.fill(array.data)
    np.testing.assert_array_equal(array, np.arange(10, 90))
    assert body.remaining_bytes == 10
    assert body.take(10) == bytes(range(90, 100))
    assert (body.remaining_bytes, body.peek(8), bytes(body.take(0))) == (0, b"", b"")


def test_bytes_within_one_chunk_are_not_copied() -> None:
    data = bytes(range(100))
    assert Body([data]).take(10).obj is data


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b"inference-header-content-length", b"7", Head(json_bytes=7)),
        (b"content-length", b"9", Head(content_bytes=9)),
        (b"content-encoding", b" GZIP ", Head(encoding="gzip")),
        (b"content-type", b"Image/JPEG; charset=x", Head(media_type="image/jpeg")),
        (b"accept", b"application/octet-stream, */*", Head(wants_binary=True)),
        (b"accept", b"*/*", Head()),
        (b"host", b"localhost", Head()),
    ],
)
def test_headers(name: bytes, value: bytes, expected: Head) -> None:
    assert Head.of([(name, value)]) == expected


@pytest.mark.parametrize(
    ("head", "raw"),
    [
        (Head(), False),
        (Head(json_bytes=0), True),
        (Head(json_bytes=5), False),
        (Head(media_type="image/png"), True),
        (Head(media_type="application/octet-stream"), False),
    ],
)
def test_which_bodies_are_raw(head: Head, raw: bool) -> None:
    assert head.is_raw is raw
