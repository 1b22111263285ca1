"""A connection to the data plane: frames both ways, and descriptors that come with some."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from service.workers.data_plane.frames import Frames, frame

Members = dict[str, Any]
Hear = Callable[[Members, bytes, int], None]

_MOST_AT_ONCE = 256 << 10
_MOST_DESCRIPTORS = 16


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
        self._unsent = bytearray()
        self._loop.add_reader(connection, self._receive)

    @property
    def is_open(self) -> bool:
        return self._connection.fileno() >= 0

    def send(self, message: Members, data: bytes = b"") -> None:
        """What cannot be sent at once is when the other end reads; to one that is gone nothing is."""
        if not self.is_open:
            return
        was_empty = not self._unsent
        self._unsent += frame(message, data)
        if was_empty:
            self._flush()

    def close(self) -> None:
        if self.is_open:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
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
