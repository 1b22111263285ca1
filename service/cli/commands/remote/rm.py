"""`octet rm`: deletes a model or a version of it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import reporting

_MODEL = re.compile(r"(?P<name>([a-z0-9][a-z0-9-]{0,30}~)?[a-z0-9][a-z0-9._-]{0,62})(:(?P<version>[1-9][0-9]{0,8}))?")
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL[:VERSION]", help="The model's name, as octet models lists it.")
]


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
    name, version = name_and_version(model)
    with reporting(as_json) as output, connect(server, key) as client:
        deleted = client.delete(name, version, force)
        if as_json:
            output.document(deleted)
            return
        versions = ", ".join(map(str, deleted["versions"]))
        aliases = f", and its aliases {', '.join(deleted['aliases'])}" if deleted["aliases"] else ""
        output.show(f"deleted {name}: {'version' if len(deleted['versions']) == 1 else 'versions'} {versions}{aliases}")


def name_and_version(model: str) -> tuple[str, int | None]:
    """Splits `mobilenet:3` into name and version; the version is None if `model` has none.

    Raises:
        typer.BadParameter: `model` has neither form.
    """
    found = _MODEL.fullmatch(model)
    if found is None:
        raise typer.BadParameter(f"{model!r} is not MODEL or MODEL:VERSION, like mobilenet:3")
    return found["name"], int(found["version"]) if found["version"] else None
