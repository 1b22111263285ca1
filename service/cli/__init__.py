"""The `octet` command. A client of the HTTP API, and the road without a server; it holds no logic that they lack."""

from service.cli.app import main

__all__ = ["main"]
