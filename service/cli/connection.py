"""Connects a command to a server. The client is imported only when a command connects: `octet push --help` should not
wait until httpx and NumPy are loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli.configuration import server_url

if TYPE_CHECKING:
    from service.cli.client import Client


def connect(server: str | None, key: str | None) -> Client:
    """Returns a client of `server`, or by default of the server on this machine. No request is sent yet."""
    from service.cli.client import Client

    return Client(server_url(server), key)
