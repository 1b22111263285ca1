"""Clients that continuously send requests while something happens to the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.waiting import WORK_TIMEOUT_S, eventually

_PAUSE_S = 0.005  # between two requests of a client, so that the clients leave processor time to the server


@dataclass
class Load:
    """The statuses of the responses that clients received; 0 represents a broken connection."""

    clients: int
    statuses: list[int] = field(default_factory=list)

    def check(self) -> None:
        """Checks that the only effects of a crash on clients were broken connections and 503."""
        assert set(self.statuses) <= {0, 200, 503}, set(self.statuses)
        # Each client may lose a running request, and a connection in the listener's queue.
        assert self.statuses.count(0) <= 2 * self.clients


@contextmanager
def under_load(ask: Callable[[], int], clients: int = 4) -> Iterator[Load]:
    """Runs clients that call `ask` continuously. Yields after the first 200. At the end, waits until each has received
    another 200.
    """
    load = Load(clients)
    over, latest = threading.Event(), dict[int, int]()

    def go_on(client: int) -> None:
        while not over.is_set():
            latest[client] = status = ask()
            load.statuses.append(status)
            over.wait(_PAUSE_S)

    threads = [threading.Thread(target=go_on, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: 200 in load.statuses)
        yield load
        latest.clear()
        eventually(lambda: list(latest.values()) == [200] * clients)
    finally:
        over.set()
        for thread in threads:
            thread.join(WORK_TIMEOUT_S)
