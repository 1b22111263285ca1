"""A relay between a client and a server. It records what the server sends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socketserver import BaseRequestHandler, ThreadingTCPServer


@dataclass
class Relay:
    """A running relay.

    Attributes:
        address: the address for clients.
        answered: the bytes that the server has sent so far.
    """

    address: str = ""
    answered: bytearray = field(default_factory=bytearray)


@contextmanager
def relay(server: str) -> Iterator[Relay]:
    """Starts a relay on a free loopback port. Clients must close their connections before the end."""
    found = Relay()
    host, port = server.rsplit(":", 1)

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as theirs:
                asking = threading.Thread(target=_pump, args=(self.request, theirs, bytearray()))
                asking.start()
                _pump(theirs, self.request, found.answered)
                asking.join()

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        found.address = f"127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield found
        finally:
            listening.shutdown()
            thread.join()


def _pump(source: socket.socket, sink: socket.socket, seen: bytearray) -> None:
    """Copies data until `source` is closed. Then closes the sending side of `sink`."""
    while data := source.recv(1 << 16):
        seen += data
        sink.sendall(data)
    with suppress(OSError):  # the socket may be closed already
        sink.shutdown(socket.SHUT_WR)
