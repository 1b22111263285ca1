"""Runs uvicorn on a free loopback port, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.waiting import GIVE_UP_S


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serves `app`, and yields `host:port`."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), name="uvicorn")
        thread.start()
        try:
            deadline_s = time.monotonic() + GIVE_UP_S
            while not server.started:
                assert thread.is_alive(), "uvicorn ended while it started"
                assert time.monotonic() < deadline_s, "uvicorn did not start"
                time.sleep(0.01)
            yield "{}:{}".format(*listener.getsockname())
        finally:
            server.should_exit = True
            thread.join()
