"""Completion of the names of models in the shell (`octet --install-completion`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from service.cli.client import Client

_WAIT_S = 1.0  # a shell waits for completions while the user types


def complete_model(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the models on the server that begin with `incomplete`; after `NAME:` its versions, after `NAME@` its
    aliases. Returns none if no server answers within a second: an error would be written into the line that the user
    types.
    """
    from service.cli.client import Client
    from service.cli.configuration import server_url
    from service.core.errors import OctetError

    try:
        with Client(server_url(context.params.get("server")), os.environ.get("OCTET_KEY"), timeout_s=_WAIT_S) as client:
            return sorted(each for each in _candidates(client, incomplete) if each.startswith(incomplete))
    except OctetError:
        return []


def _candidates(client: Client, incomplete: str) -> Iterator[str]:
    for separator, member, key in ((":", "versions", "version"), ("@", "aliases", "name")):
        name, found, _ = incomplete.partition(separator)
        if found:
            yield from (f"{name}{separator}{each[key]}" for each in client.model(name)[member])
            return
    yield from {each["name"] for each in client.models()}
