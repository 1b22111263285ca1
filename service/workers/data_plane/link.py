"""A connection to the data plane. The connection carries frames in both directions, and a frame can have a file
descriptor.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from service.workers.data_plane.frames import Frames, frame

Members = dict[str, Any]
OnMessage = Callable[[Members, bytes, int], None]

_MOST_AT_ONCE = 256 << 10
_MOST_DESCRIPTORS = 16
_SILENT_S, _PROBE_EVERY_S, _PROBES = 2, 1, 3  # TCP keepalive: the peer is lost if it leaves 3 probes unanswered


class Passable(Protocol):
    """A socket or an open file, whose descriptor a frame can carry."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


@dataclass
class _Unsent:
    """A frame, or the unsent rest of one, and the descriptor that is sent with its first byte."""

    rest: memoryview
    passed: Passable | None

    def send(self, connection: socket.socket) -> bool:
        """Sends as much as possible. Returns true if the frame is complete."""
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
    """Sends and receives frames, for one event loop. Works from its construction until `close`, or until it calls
    `lost`, which happens at most once.
    """

    def __init__(self, connection: socket.socket, hear: OnMessage, lost: Callable[[], None]) -> None:
        """
        Args:
            connection: a non-blocking Unix socket. This object owns it from now on.
            hear: called with each frame and the descriptor that came with it, or -1. The callee closes the descriptor.
            lost: called when the other end has closed the connection, or has sent something that is not a frame.
        """
        self._connection, self._on_message, self._lost = connection, hear, lost
        self._loop = asyncio.get_running_loop()
        self._frames, self._descriptors = Frames(), deque[int]()
        self._unsent = deque[_Unsent]()
        self._loop.add_reader(connection, self._receive)

    @property
    def is_open(self) -> bool:
        return self._connection.fileno() >= 0

    def send(self, message: Members, data: bytes = b"", passed: Passable | None = None) -> None:
        """Sends a frame. The part that cannot be sent at once is sent when the other end has read more. Does nothing if
        the connection is closed.

        Args:
            passed: a socket or file to send with the frame. This object closes it once it is sent, or if the connection
                is closed.
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
            if not self.is_open:  # the previous message caused the link to be closed
                return
            carries = message.get("type") == "connection" or message.get("passes") is True
            self._on_message(message, rest, self._descriptors.popleft() if carries and self._descriptors else -1)

    def _end(self) -> None:
        if self.is_open:
            self.close()
            self._lost()


async def connected_to(host: str, port: int) -> socket.socket:
    """Opens a non-blocking TCP connection to a data plane. Keepalive probes detect a peer that disappears without
    closing it.

    Raises:
        OSError: the data plane cannot be reached.
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
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_SILENT_S + _PROBES * _PROBE_EVERY_S)),
        ):
            connection.setsockopt(level, option, value)
        await loop.sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection
