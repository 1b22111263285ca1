"""A connection to the data plane: frames both ways, and descriptors that come with some."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.workers.data_plane.frames import Frames, frame

Members = dict[str, Any]
Hear = Callable[[Members, bytes, int], None]

_MOST_AT_ONCE = 256 << 10
_MOST_DESCRIPTORS = 16
_SILENT_S, _ASK_EVERY_S, _QUESTIONS = 2, 1, 3  # of a connection's other end, which is lost when it answers no question


@dataclass
class _Unsent:
    """A frame, or what is left of it, and the descriptor that goes with its first byte."""

    rest: memoryview
    passed: socket.socket | None

    def send(self, connection: socket.socket) -> bool:
        """Whether that was all."""
        descriptors = [] if self.passed is None else [self.passed.fileno()]
        sent = socket.send_fds(connection, [self.rest], descriptors) if descriptors else connection.send(self.rest)
        self.close()
        self.rest = self.rest[sent:]
        return not self.rest

    def close(self) -> None:
        if self.passed is not None:
            self.passed.close()
        self.passed = None


class Link:
    """For one event loop, from its making until `lost` is called, once, or `close`."""

    def __init__(self, connection: socket.socket, hear: Hear, lost: Callable[[], None]) -> None:
        """
        Args:
            connection: a Unix socket, which does not block and is this object's from now on.
            hear: called with each frame, and the descriptor that came with it, which is its to close; else -1.
            lost: the other end is closed, or says what is no frame.
        """
        self._connection, self._hear, self._lost = connection, hear, lost
        self._loop = asyncio.get_running_loop()
        self._frames, self._descriptors = Frames(), deque[int]()
        self._unsent = deque[_Unsent]()
        self._loop.add_reader(connection, self._receive)

    @property
    def is_open(self) -> bool:
        return self._connection.fileno() >= 0

    def send(self, message: Members, data: bytes = b"", passed: socket.socket | None = None) -> None:
        """What cannot be sent at once is when the other end reads; to one that is gone nothing is.

        Args:
            passed: a descriptor that goes with the frame, and is closed here then, or where nobody is there.
        """
        if not self.is_open:
            if passed is not None:
                passed.close()
            return
        self._unsent.append(_Unsent(memoryview(frame(message, data)), passed))
        if len(self._unsent) == 1:
            self._flush()

    def close(self) -> None:
        if self.is_open:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        while self._unsent:
            self._unsent.popleft().close()

    def _flush(self) -> None:
        try:
            while self._unsent:
                if self._unsent[0].send(self._connection):
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._connection, self._flush)
        except OSError:
            self._end()
        else:
            self._loop.remove_writer(self._connection)

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._connection, _MOST_AT_ONCE, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._descriptors += descriptors
        try:
            frames = self._frames.feed(data) if data else None
        except ValueError:
            frames = None
        if frames is None:
            self._end()
            return
        for message, rest in frames:
            if not self.is_open:  # by what was heard just now
                return
            carries = message.get("type") == "connection"
            self._hear(message, rest, self._descriptors.popleft() if carries and self._descriptors else -1)

    def _end(self) -> None:
        if self.is_open:
            self.close()
            self._lost()


async def connected_to(host: str, port: int) -> socket.socket:
    """A TCP connection for a data plane, which does not block; its other end is noticed to be lost, however it ends.

    Raises:
        OSError: it cannot be reached.
    """
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        for level, option, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASK_EVERY_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _QUESTIONS),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_SILENT_S + _QUESTIONS * _ASK_EVERY_S)),
        ):
            connection.setsockopt(level, option, value)
        await loop.sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection
