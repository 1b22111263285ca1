"""A network between a client and a server that refuses, drops what is sent, or breaks at the worst moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

Server = tuple[str, int] | Path  # or a Unix socket


class BadNetwork:
    """A proxy.

    Attributes:
        port: on the loopback address, for the client.
        is_refusing: whether connections are closed at once, those that there are and new ones.
    """

    def __init__(self, server: Server) -> None:
        self._server, self.port = server, 0
        self.is_refusing = False
        self._flows = threading.Event()
        self._flows.set()
        self._cut_after: bytes | None = None
        self._connections: set[socket.socket] = set()

    def stall(self) -> None:
        """From now on nothing that is sent arrives, and nobody hears that."""
        self._flows.clear()

    def flow(self) -> None:
        """What was sent meanwhile arrives."""
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
        """The next time that a client sends these, they arrive, and the connection is closed before the answer."""
        self._cut_after = words

    def serve(self, client: socket.socket) -> None:
        """One connection of a client, until it ends."""
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
                    source.shutdown(socket.SHUT_RDWR)  # first: so the answer does not get through
                    sink.sendall(data)
                    break
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def bad_network(server: Server) -> Iterator[BadNetwork]:
    """Before `server`; good until it is told otherwise."""
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
