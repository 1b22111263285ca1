"""Socket options that all listeners share."""

from __future__ import annotations

import socket

_LOST_CLIENT_MS = 60_000


def notice_lost_clients(listener: socket.socket) -> None:
    """Sets options that accepted sockets inherit from the listener.

    asyncio sets TCP_NODELAY only on sockets that it creates; without it, a response on a reused connection waits 40 ms
    for the client's delayed acknowledgement. The other options close connections whose clients have disappeared or do
    not read their response.
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOST_CLIENT_MS)
