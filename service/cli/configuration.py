"""The settings of a command, and the server that they name."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from service.core.settings import Settings


def load_checked(flags: Mapping[str, Any] | None = None) -> Settings:
    """Returns the settings. An invalid setting is reported as a usage error."""
    from pydantic import ValidationError

    from service.core.settings import load_settings

    try:
        return load_settings(flags)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors()
        )
        raise typer.BadParameter(wrong) from error


def server_url(server: str | None) -> str:
    """Returns the URL of `server`, or by default the address at which `octet serve` listens on this machine."""
    if server:
        return server if "://" in server else f"http://{server}"
    settings = load_checked()
    return local_url(settings.host, settings.port, tls=settings.tls_cert is not None)


def server_flag(server: str | None) -> str:
    """Returns the option that a suggested command needs to reach the same server, or "" if OCTET_SERVER is that one."""
    return f" --server {shlex.quote(server)}" if server and server != os.environ.get("OCTET_SERVER") else ""


def local_url(host: str, port: int, tls: bool = False) -> str:
    """Returns the URL at which this machine reaches a server listening on `host`. Clients cannot connect to 0.0.0.0 or
    ::.
    """
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{'https' if tls else 'http'}://" + (f"[{reachable}]" if ":" in reachable else reachable) + f":{port}"
