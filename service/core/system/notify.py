"""Reports the state of the service to systemd (sd_notify(3)): that it is ready, still running, or stopping.

systemd passes the name of a socket in the environment. Without that name, nothing is sent.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress

_SOCKET, _PERIOD_US, _PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_READY, _ALIVE, _STOPPING = b"READY=1", b"WATCHDOG=1", b"STOPPING=1"


class ServiceManager:
    """The connection to systemd. The methods do nothing if systemd did not start this process.

    Attributes:
        watchdog_s: the longest allowed interval between calls of `alive`; None if systemd does not watch this process.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """
        Args:
            environment: the environment variables; by default those of this process.
        """
        given = os.environ if environment is None else environment
        self._address = _address(given.get(_SOCKET, ""))
        self.watchdog_s = _period_s(given) if self._address else None

    def ready(self) -> None:
        self._send(_READY)

    def alive(self) -> None:
        self._send(_ALIVE)

    def stopping(self) -> None:
        self._send(_STOPPING)

    def connected(self) -> socket.socket | None:
        """Returns a socket on which the program that replaces this one can report its state; None without systemd."""
        if self._address is None:
            return None
        to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            to.connect(self._address)
        except OSError:
            to.close()
            return None
        to.setblocking(False)
        return to

    def _send(self, message: bytes) -> None:
        if self._address is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            to.sendto(message, self._address)


def _address(name: str) -> str | None:
    """Returns the address of a socket: a path, or `@` and a name in the abstract namespace. None for other names."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else None


def _period_s(given: Mapping[str, str]) -> float | None:
    """Returns half of the time after which systemd acts; None if it does not watch this process."""
    if given.get(_PID, str(os.getpid())) != str(os.getpid()):
        return None
    with suppress(ValueError):
        period_us = int(given.get(_PERIOD_US, ""))
        return period_us / 2e6 if period_us > 0 else None
    return None
