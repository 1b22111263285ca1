"""A client's end of one connection, of either kind: one that sleeps until the answer comes, or one that does not.

A core that has nothing to do is halted, and a virtual one is then the host's: waking a process there takes tens
of microseconds, which are not the server's. A polling client needs a core of its own.
"""

from __future__ import annotations

import socket
import time
from enum import StrEnum

_RECEIVE_BYTES = 1 << 20
_LIMIT_S = 60.0


class Waiting(StrEnum):
    """The ways in which a client waits for its answer."""

    BLOCKING = "blocking"
    POLLING = "polling"


class Link:
    """A connection, and how its answers are waited for."""

    def __init__(self, host: str, port: int, waiting: Waiting = Waiting.BLOCKING) -> None:
        self._polls = waiting is Waiting.POLLING
        self._socket = socket.create_connection((host, port), timeout=_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._polls:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # or it would sleep while it sends
            self._socket.settimeout(None)  # Python would wait by itself, otherwise, for what is not there yet

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Receives at least a byte. Raises RuntimeError if the server closed the connection or sends nothing."""
        data = self._polled() if self._polls else self._socket.recv(_RECEIVE_BYTES)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()

    def _polled(self) -> bytes:
        ends = time.monotonic() + _LIMIT_S
        while time.monotonic() < ends:
            try:
                return self._socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
        raise RuntimeError(f"no answer within {_LIMIT_S:.0f} s")
