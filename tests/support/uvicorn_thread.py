"""A real uvicorn on a free loopback port, in a thread of the test's process."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from service.api.oip.front import Fronted
from service.api.oip.front.shortcut import connections
from service.core.settings import Settings
from tests.support.manual_clock import ManualClock
from tests.support.waiting import GIVE_UP_S


@contextmanager
def listening(
    app: Any, tls: ssl.SSLContext | None = None, clock: ManualClock | None = None, **settings: Any
) -> Iterator[str]:
    """Serves `app` as `octet serve` does, on `clock` where one is given; gives `host:port`."""
    chosen = Settings(**settings)
    protocol: Any = connections(chosen)
    factory = None if tls is None else lambda config, default: tls
    config = uvicorn.Config(app, http=protocol, log_level="warning", server_header=False, ssl_context_factory=factory)
    has_services = hasattr(getattr(app, "state", None), "services")
    server = Fronted(config, app, chosen) if has_services else uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            if clock is None:
                server.run([listener])
            else:
                clock.run_until_complete(server.serve([listener]))
                clock.close()

        thread = threading.Thread(target=run, name="uvicorn")
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
            while clock is not None and thread.is_alive():
                with suppress(RuntimeError):  # it was closed meanwhile
                    clock.skip(0.1)  # uvicorn looks ten times a second
                thread.join(0.01)
            thread.join()
