"""`octet rm`: deletes a model or a version of it."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import reporting
from service.cli.versions import ModelArgument, resolve_model


def rm(
    model: ModelArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Delete even if an alias points to it, and delete the alias too.")
    ] = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a model with all its versions, or one version of it.

    Requests that are running are still answered. The next hourly collection, or octet gc, deletes the files.
    """
    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        deleted = client.delete(name, version, force)
        if as_json:
            output.document(deleted)
            return
        versions = ", ".join(map(str, deleted["versions"]))
        aliases = f", and its aliases {', '.join(deleted['aliases'])}" if deleted["aliases"] else ""
        output.show(f"deleted {name}: {'version' if len(deleted['versions']) == 1 else 'versions'} {versions}{aliases}")
