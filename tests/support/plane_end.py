"""The data plane's end of the control connection. A test acts as the data plane, frame by frame."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

from service.workers.data_plane.frames import PROTOCOL, Frames, frame
from tests.support.waiting import GIVE_UP_S

Members = dict[str, Any]


class PlaneEnd:
    """A socket to which a control plane's `DataPlane` connects. It accepts one connection at a time.

    Attributes:
        address: the address of the Unix socket, in the abstract namespace.
    """

    def __init__(self) -> None:
        self.address = b"\0octet-test-" + os.urandom(8).hex().encode()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen()
        self._listener.setblocking(False)
        self._frames, self._received = Frames(), deque[tuple[Members, bytes]]()
        self._connection: socket.socket | None = None

    async def accept(
        self, models: Sequence[int] = (), routes: Sequence[Members] = (), protocol: int = PROTOCOL
    ) -> None:
        """Accepts the connection, and sends the first message with the loaded `models` and the `routes`."""
        connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        connection.setblocking(False)
        self._connection = connection
        self._frames = Frames()
        self._received.clear()
        self.send({"type": "hello", "protocol": protocol, "models": list(models), "routes": list(routes)})

    def send(self, members: Members, data: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        self.send_bytes(frame(members, data), descriptors)

    def send_bytes(self, raw: bytes, descriptors: Sequence[int] = ()) -> None:
        assert self._connection is not None
        sent = socket.send_fds(self._connection, [raw], descriptors)
        assert sent == len(raw)

    async def read_frame(self) -> tuple[Members, bytes]:
        """Returns the next frame."""
        assert self._connection is not None
        while not self._received:
            async with asyncio.timeout(GIVE_UP_S):
                received = await asyncio.get_running_loop().sock_recv(self._connection, 1 << 16)
            assert received, "the control plane has closed the connection"
            self._received += self._frames.feed(received)
        return self._received.popleft()

    async def expect(self, kind: str) -> Members:
        """Returns the next frame, which must be of type `kind` and without bytes."""
        members, data = await self.read_frame()
        assert (members["type"], data) == (kind, b"")
        return members

    def leave(self) -> None:
        assert self._connection is not None
        self._connection.close()
        self._connection = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._listener.close()
