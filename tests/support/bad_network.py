"""A proxy that imitates a bad network: it refuses connections, drops data, or breaks at the worst moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

Server = tuple[str, int] | Path  # an address, or the path of a Unix socket


class BadNetwork:
    """A proxy in front of a server.

    Attributes:
        port: the port on the loopback address to which clients connect.
        is_refusing: True while existing and new connections are closed at once.
    """

    def __init__(self, server: Server) -> None:
        self._server, self.port = server, 0
        self.is_refusing = False
        self._flows = threading.Event()
        self._flows.set()
        self._cut_after: bytes | None = None
        self._connections: set[socket.socket] = set()

    def stall(self) -> None:
        """Stops forwarding data. Neither side gets an error."""
        self._flows.clear()

    def flow(self) -> None:
        """Forwards data again, including data that was sent in the meantime."""
        self._flows.set()

    def refuse(self) -> None:
        self.is_refusing = True
        self.cut()

    def accept(self) -> None:
        self.is_refusing = False

    def cut(self) -> None:
        """Closes all connections."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def cut_after(self, words: bytes) -> None:
        """When a client sends `words`, forwards them, and closes the connection before the response."""
        self._cut_after = words

    def serve(self, client: socket.socket) -> None:
        """Serves one connection of a client until it ends."""
        if self.is_refusing:
            return
        with self._connected() as server:
            self._connections |= {client, server}
            answering = threading.Thread(target=self._pump, args=(server, client))
            answering.start()
            self._pump(client, server, is_asking=True)
            answering.join()
            self._connections -= {client, server}

    def _connected(self) -> socket.socket:
        if not isinstance(self._server, Path):
            return socket.create_connection(self._server)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._server))
        return connection

    def _pump(self, source: socket.socket, sink: socket.socket, is_asking: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._flows.wait()
                words = self._cut_after if is_asking else None
                if words is not None and words in data:
                    self._cut_after = None
                    # before `words` are forwarded, so that the response cannot be forwarded
                    source.shutdown(socket.SHUT_RDWR)
                    sink.sendall(data)
                    break
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def bad_network(server: Server) -> Iterator[BadNetwork]:
    """Starts a proxy in front of `server`. It forwards everything until a method changes that."""
    network = BadNetwork(server)

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            network.serve(self.request)

    class Listening(ThreadingTCPServer):
        daemon_threads = True

    with Listening(("127.0.0.1", 0), Handler) as listening:
        network.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield network
        finally:
            network.flow()
            network.cut()
            listening.shutdown()
            thread.join()
