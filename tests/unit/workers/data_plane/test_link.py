"""Tests of frames and descriptors over a Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.workers.data_plane.frames import Frames, frame
from service.workers.data_plane.link import Link, connected_to
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio
LARGE = bytes(4 << 20)  # more than a socket's buffer holds


class Ends:
    """A link, and the socket at its other end."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, Any], bytes, int]] = []
        self.losses = 0
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.theirs.setblocking(False)
        self.link = Link(ours, lambda *what: self.heard.append(what), self._lose)

    def _lose(self) -> None:
        self.losses += 1


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    yield ends
    ends.link.close()
    ends.theirs.close()


async def test_a_frame_in_pieces_is_received_whole(ends: Ends) -> None:
    raw = frame({"type": "a"}, b"12") + frame({"type": "b"})
    for at in range(0, len(raw), 5):
        ends.theirs.send(raw[at : at + 5])
        await asyncio.sleep(0)
    await eventually_async(lambda: len(ends.heard) == 2)
    assert ends.heard == [({"type": "a"}, b"12", -1), ({"type": "b"}, b"", -1)]


async def test_a_descriptor_belongs_to_the_connection_message_that_it_came_with(ends: Ends) -> None:
    pipes = [os.pipe() for _ in range(2)]
    raw = [frame({"type": "connection", "number": number}) for number in range(2)]
    socket.send_fds(ends.theirs, [frame({"type": "trace"}) + raw[0]], [pipes[0][0]])
    socket.send_fds(ends.theirs, [raw[1]], [pipes[1][0]])
    await eventually_async(lambda: len(ends.heard) == 3)
    assert ends.heard[0][2] == -1
    for (members, _, descriptor), (read, write) in zip(ends.heard[1:], pipes, strict=True):
        os.write(write, str(members["number"]).encode())
        assert os.read(descriptor, 9) == str(members["number"]).encode()
        for each in (descriptor, read, write):
            os.close(each)


async def test_data_that_exceeds_the_buffer_is_sent_when_the_other_end_reads(ends: Ends) -> None:
    ends.link.send({"type": "a"}, LARGE)
    ends.link.send({"type": "b"})
    frames, heard = Frames(), list[str]()
    while len(heard) < 2:
        received = await asyncio.get_running_loop().sock_recv(ends.theirs, 1 << 20)
        heard += [members["type"] for members, _ in frames.feed(received)]
    assert heard == ["a", "b"]


@pytest.mark.parametrize("how", ["closes", "says what is no frame", "announces too much"])
async def test_the_loss_is_reported_once(ends: Ends, how: str) -> None:
    if how == "closes":
        ends.theirs.close()
    else:
        ends.theirs.send(b"\2\0\0\0\0\0\0\0no" if how == "says what is no frame" else b"\xff" * 8)
    await eventually_async(lambda: ends.losses > 0)
    assert not ends.link.is_open
    ends.link.send({"type": "a"})  # the other end is closed
    ends.link.close()
    assert ends.losses == 1


async def test_the_loss_is_reported_to_a_sender(ends: Ends) -> None:
    ends.link.send({"type": "a"}, LARGE)
    ends.theirs.close()
    await eventually_async(lambda: ends.losses == 1)


async def test_unclaimed_descriptors_are_closed_with_the_link(ends: Ends) -> None:
    read, write = os.pipe()
    half = frame({"type": "connection"})[:-1]
    socket.send_fds(ends.theirs, [half], [write])
    os.close(write)
    await asyncio.sleep(0.05)
    assert ends.heard == []
    ends.link.close()
    assert os.read(read, 1) == b""  # the writer is closed
    os.close(read)


async def test_nothing_is_received_after_close(ends: Ends) -> None:
    ends.link = Link(ends.link._connection, lambda *what: (ends.heard.append(what), ends.link.close()), ends._lose)  # type: ignore[arg-type,func-returns-value]
    ends.theirs.send(frame({"type": "a"}) + frame({"type": "b"}))
    await eventually_async(lambda: bool(ends.heard))
    await asyncio.sleep(0.05)
    assert [each[0]["type"] for each in ends.heard] == ["a"]
    assert ends.losses == 0


async def test_a_descriptor_is_sent_with_its_frame_and_closed(ends: Ends) -> None:
    ours, theirs = socket.socketpair()
    ends.link.send({"type": "a"}, LARGE)
    ends.link.send({"type": "b"}, b"", ours)
    frames, heard, found = Frames(), list[str](), list[int]()
    while len(heard) < 2:
        try:
            received, descriptors, _, _ = socket.recv_fds(ends.theirs, 1 << 20, 4)
        except BlockingIOError:
            await asyncio.sleep(0.001)
            continue
        found += descriptors
        heard += [members["type"] for members, _ in frames.feed(received)]
    assert (heard, len(found), ours.fileno()) == (["a", "b"], 1, -1)
    theirs.send(b"x")
    with socket.socket(fileno=found[0]) as passed:
        assert passed.recv(1) == b"x"
    theirs.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_descriptor_that_cannot_be_sent_is_closed(ends: Ends, when: str) -> None:
    ours, theirs = socket.socketpair()
    if when == "before":
        ends.link.close()
    ends.link.send({"type": "a"}, LARGE)
    ends.link.send({"type": "b"}, b"", ours)
    ends.link.close()
    assert theirs.recv(1) == b""
    theirs.close()


async def test_a_connection_that_fails_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with await connected_to("127.0.0.1", port) as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    with pytest.raises(ConnectionRefusedError):
        await connected_to("127.0.0.1", port)
