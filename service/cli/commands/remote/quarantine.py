"""`octet quarantine`: artifacts that are not run any more, because the server crashed while running them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from service.cli.configuration import server_flag
from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, ServerOption
from service.cli.output import Output, reporting
from service.core.errors import NotFound


def quarantine(
    artifact: Annotated[
        str | None, typer.Argument(metavar="ARTIFACT", help="The digest of an artifact: show only this one.")
    ] = None,
    forgive: Annotated[
        bool, typer.Option("--forgive", help="Release the ARTIFACT from quarantine, so that it runs again.")
    ] = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the artifacts that are quarantined because they crashed the server, or release one."""
    if forgive and artifact is None:
        raise typer.BadParameter("--forgive needs an ARTIFACT")
    with reporting(as_json) as output, connect(server, key) as client:
        if forgive and artifact is not None:
            forgiven = client.forgive(artifact)
            output.document(forgiven) if as_json else output.show(f"{names(forgiven)} may run again")
            return
        held = [each for each in client.quarantine() if artifact in (None, each["artifact"])]
        if artifact is not None and not held:
            raise NotFound(f"artifact {artifact} is not in quarantine")
        output.document(held) if as_json else show(output, held, server)


def show(output: Output, held: list[dict[str, Any]], server: str | None) -> None:
    """Shows the artifacts in quarantine, and how to release them."""
    if not held:
        output.show("No artifact is in quarantine.")
        return
    for each in held:
        last, times = each["crashes"][-1][:19].replace("T", " "), len(each["crashes"])
        output.show(
            f"[bold red]in quarantine[/bold red]: {names(each)}",
            f"  artifact {each['artifact']}",
            f"  the server crashed while running it, {times} time{'s' * (times > 1)}, last at {last} UTC "
            f"({each['how']})",
        )
    output.next_command(f"octet quarantine {held[-1]['artifact']} --forgive{server_flag(server)}")


def names(held: dict[str, Any]) -> str:
    """Returns the models that use the artifact, as text."""
    found = [f"{model['name']} version {model['version']} for {model['target']}" for model in held["models"]]
    return ", ".join(found) or "an artifact that no model uses any more"
