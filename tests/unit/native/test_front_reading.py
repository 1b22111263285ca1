"""The native front reads heads as Python does, or leaves them to it, and streams wherever they are cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.oip.front.exchange import Head
from service.native.front import Front, Handover
from tests.support.native_front import (
    HEADER,
    LARGE,
    LARGE_HEADER,
    LIMITS,
    LONGEST_BYTES,
    PATH,
    Model,
    Serving,
    plus_one,
    post,
    read,
    seen_by_python,
)
from tests.support.waiting import GIVE_UP_S

# Heads that are nearly of the usual form: what is taken here is what Python takes, and read as Python reads it.

_HEADERS = [
    b"Host: here",
    b"Content-Length: %d" % (len(HEADER) + 100),
    b"Inference-Header-Content-Length: %d" % len(HEADER),
]
_EXTRAS = st.sampled_from(
    [
        b"A: b", b"host: twice", b"content-length: 125", b"Content-Length : 125", b" folded", b"no colon", b": n", b"",
        b"Connection: keep-alive", b"Connection: Keep-Alive", b"connection:\tkeep-alive ", b"Expect: x", b"Upgrade: h",
        b"Transfer-Encoding: chunked", b"X: \x80\xff", b"X: \x00", b"X: a\rb", b"X: a\nb", b"X: \x7f", b"X\xe9: a",
    ]
)  # fmt: skip
_EDITS = st.tuples(
    st.integers(0, 400), st.integers(0, 2), st.binary(max_size=2) | st.sampled_from([b"\r", b"\n", b"\r\n", b" "])
)


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    model = Model()
    started = Front.on(-1, LIMITS)
    started.route({PATH: model.entry})
    yield started
    started.stop()
    started.join()
    model.close()


@settings(max_examples=400, deadline=None)
@given(st.permutations(_HEADERS), st.lists(_EXTRAS, max_size=2), st.lists(_EDITS, max_size=2))
def test_it_takes_no_head_that_python_would_read_otherwise(
    front: Front, headers: list[bytes], extras: list[bytes], edits: list[tuple[int, int, bytes]]
) -> None:
    lines = [b"POST " + PATH.encode() + b" HTTP/1.1", *headers[:2], *extras, *headers[2:], b"", b""]
    request = b"\r\n".join(lines) + HEADER + bytes(100)
    for at, count, inserted in edits:
        request = request[:at] + inserted + request[at + count :]
    head = Head.of(request, len(request), LONGEST_BYTES)
    fits = (
        head is not None
        and head.path == PATH.encode()
        and (head.json_bytes, head.body_bytes) == (len(HEADER), len(HEADER) + 100)
        and (begun := request[head.end :][: len(HEADER)]) == HEADER[: len(begun)]
    )
    assert front.takes(request) == fits


_REQUESTS = [
    post(b"\1" * 100),
    post(b"\2" * LARGE, header=LARGE_HEADER),
    post(b"\3" * 100, "Accept-Encoding: gzip", "X-Request-Id: three"),
]
_STRANGE = [post(b"\1" * 100, header=b"strange" * 3), b"GET /somewhere HTTP/1.1\r\nHost: here\r\n\r\n"]


@pytest.fixture(scope="module")
def lasting() -> Iterator[Serving]:
    started = Serving(Model(), LIMITS)
    yield started
    started.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(_REQUESTS), max_size=4), st.none() | st.sampled_from(_STRANGE), st.data())
def test_however_requests_are_cut_the_answers_are_theirs(
    lasting: Serving, requests: list[bytes], strange: bytes | None, data: st.DataObject
) -> None:
    stream = b"".join(requests) + (strange or b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    with socket.create_connection(lasting.listener.getsockname(), timeout=GIVE_UP_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

        def send() -> None:
            for piece in pieces:
                client.sendall(piece)

        sender = threading.Thread(target=send)
        sender.start()
        for request in requests:
            assert read(client)[2] == plus_one(request.partition(b"]}")[2])
        if strange:
            event = lasting.event()
            assert isinstance(event, Handover)
            assert seen_by_python(event, strange) == strange
        sender.join()
