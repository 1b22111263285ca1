"""A socket that receives notifications for systemd (sd_notify(3))."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def notified() -> Iterator[list[bytes]]:
    """Yields the list of messages that processes started within the block send to systemd."""
    messages: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener, pytest.MonkeyPatch.context() as patch:
        listener.bind("")
        patch.setenv("NOTIFY_SOCKET", "@" + listener.getsockname()[1:].decode())
        patch.setenv("WATCHDOG_USEC", "2000000")

        def hear() -> None:
            while message := listener.recv(100):
                messages.append(message)

        hearing = threading.Thread(target=hear)
        hearing.start()
        yield messages
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", listener.getsockname())
        hearing.join()
