"""A real uvicorn on a free loopback port, in a thread of the test's process."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from service.api.shortcut import connections
from service.core.settings import Settings


@contextmanager
def listening(app: Any, tls: ssl.SSLContext | None = None, **settings: Any) -> Iterator[str]:
    """Serves `app` as `octet serve` does; gives `host:port`."""
    protocol: Any = connections(Settings(**settings))
    factory = None if tls is None else lambda config, default: tls
    server = uvicorn.Server(
        uvicorn.Config(app, http=protocol, host="127.0.0.1", port=0, log_level="warning", ssl_context_factory=factory)
    )
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    try:
        deadline_s = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive(), "uvicorn ended while it started"
            assert time.monotonic() < deadline_s, "uvicorn did not start"
            time.sleep(0.01)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"{host}:{port}"
    finally:
        server.should_exit = True
        thread.join()
