"""Socket options and helpers that all listeners share."""

from __future__ import annotations

import socket

_LOST_CLIENT_MS = 60_000


def notice_lost_clients(listener: socket.socket) -> None:
    """Accepted sockets inherit what is set here.

    asyncio sets the first only on sockets of its own making, and without it an answer on a kept connection waits 40 ms
    for the client's delayed acknowledgement. The others end connections whose clients are gone without a word, or do
    not read what they asked for.
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOST_CLIENT_MS)
