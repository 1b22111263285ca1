"""A client's end of one connection. It either sleeps until the response arrives, or polls for it.

An idle core is halted, and a virtual core is then given back to the host: waking a process there takes tens of
microseconds, which the server does not cause. A polling client needs a core of its own.
"""

from __future__ import annotations

import socket
import time
from enum import StrEnum

_RECEIVE_BYTES = 1 << 20
_LIMIT_S = 60.0


class Waiting(StrEnum):
    """The ways in which a client waits for its response."""

    BLOCKING = "blocking"
    POLLING = "polling"


class Link:
    """A connection, with the way in which its responses are waited for."""

    def __init__(self, host: str, port: int, waiting: Waiting = Waiting.BLOCKING) -> None:
        self._polls = waiting is Waiting.POLLING
        self._socket = socket.create_connection((host, port), timeout=_LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._polls:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # Otherwise sending would sleep.
            self._socket.settimeout(None)  # Otherwise Python itself would wait for data that has not arrived.

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """Receives at least one byte. Raises RuntimeError if the server closed the connection or sends nothing."""
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
        raise RuntimeError(f"no response within {_LIMIT_S:.0f} s")
